use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Breaks a connection off when its other end takes nothing for too long. Otherwise what it does not read would pile up.
#[derive(Debug)]
pub(super) struct Impatient<S> {
    stream: S,
    patience: Duration,
    /// Ends when the other end has taken nothing for too long, while something is pending.
    stalled: Pin<Box<Sleep>>,
    /// Whether a write waits, and whether a flush does. Without encryption a flush never waits: that says nothing about the writes.
    pending: [bool; 2],
    /// Something was taken since it last came to a stand.
    has_taken: bool,
}

const WRITE: usize = 0;
const FLUSH: usize = 1;

impl<S> Impatient<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, stalled: Box::pin(sleep(patience)), pending: [false; 2], has_taken: false }
    }

    fn watch<T>(&mut self, what: usize, cx: &mut Context<'_>, done: Poll<Result<T>>) -> Poll<Result<T>> {
        if done.is_ready() {
            self.pending[what] = false;
            self.has_taken |= what == WRITE;
            return done;
        }
        // Time counts from when it came to a stand, and anew when something was taken.
        if std::mem::take(&mut self.has_taken) || self.pending == [false; 2] {
            self.stalled.as_mut().reset(Instant::now() + self.patience);
        }
        self.pending[what] = true;
        ready!(self.stalled.as_mut().poll(cx));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(WRITE, cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watch(WRITE, cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(FLUSH, cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(FLUSH, cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn flushing_what_needs_none_gives_nobody_more_time() {
        let (near, _far) = duplex(16);
        let mut near = Impatient::new(near, Duration::from_secs(10));
        near.write_all(&[1; 16]).await.unwrap();
        let error = loop {
            // The driver of the connection looks now and then, and flushes each time.
            match tokio::time::timeout(Duration::from_secs(1), near.write_all(&[2])).await {
                Ok(written) => break written.unwrap_err(),
                Err(_) => near.flush().await.unwrap(),
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_off_and_one_that_reads_slowly_is_not() {
        let (near, mut far) = duplex(16);
        let mut near = Impatient::new(near, Duration::from_secs(10));
        let writing = tokio::spawn(async move {
            let slow = near.write_all(&[1; 64]).await;
            (slow, near.write_all(&[2; 64]).await)
        });
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_secs(9)).await;
            far.read_exact(&mut [0; 16]).await.unwrap();
        }
        let (slow, stopped) = writing.await.unwrap();
        slow.unwrap();
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
