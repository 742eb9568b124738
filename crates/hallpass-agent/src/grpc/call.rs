//! The way from a request of HTTP to a call of gRPC and back: tonic's framing, without its server and without generated code.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use prost::Message;
use tokio_stream::Stream;
use tonic::codec::{BufferSettings, Codec};
use tonic::server::Grpc;
use tonic::{Status, Streaming};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};
use tower_service::Service;

use crate::http::{BODY_BYTES_MAX, Bodies, Timed};

/// How much is set aside for each message. Most are shorter, and many calls stay open for long.
const BUFFER_BYTES: usize = 512;
/// How many bytes of answers are collected before they are sent.
const YIELD_BYTES: usize = 32 * 1024;

/// Messages to a client.
pub(super) struct Answers<A>(Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>);

impl<A> Answers<A> {
    pub(super) fn new(stream: impl Stream<Item = Result<A, Status>> + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }
}

impl<A> Stream for Answers<A> {
    type Item = Result<A, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

/// A function as a service.
struct Call<F>(F);

impl<F, Q, A, R> Service<tonic::Request<Q>> for Call<F>
where
    F: FnMut(Q) -> R,
    R: Future<Output = Result<A, Status>> + Send + 'static,
{
    type Response = tonic::Response<A>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<A>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        Box::pin(async move { answer.await.map(tonic::Response::new) })
    }
}

/// The usual codec, with small buffers.
struct SmallCodec<A, Q>(PhantomData<fn() -> (A, Q)>);

impl<A, Q> Codec for SmallCodec<A, Q>
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
{
    type Encode = A;
    type Decode = Q;
    type Encoder = ProstEncoder<A>;
    type Decoder = ProstDecoder<Q>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<A, Q>::raw_encoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<A, Q>::raw_decoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }
}

fn server<Q, A>(bytes_max: usize) -> Grpc<SmallCodec<A, Q>>
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
{
    Grpc::new(SmallCodec(PhantomData)).max_decoding_message_size(bytes_max)
}

/// The request with as much of its head as is needed from here on. The rest would be kept while its messages are waited for.
fn without_head(request: Request) -> Request {
    const ENCODING: &str = "grpc-encoding";
    let encoding = request.headers().get(ENCODING).and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok());
    let mut small = Request::new(request.into_body());
    small.headers_mut().extend(encoding.map(|encoding| (HeaderName::from_static(ENCODING), encoding)));
    small
}

/// One message of at most so many bytes for one.
pub(super) async fn unary<Q, A, R>(
    request: Request,
    bytes_max: usize,
    bodies: &Bodies,
    call: impl FnMut(Q) -> R + Send,
) -> Response
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + Sync + 'static,
    R: Future<Output = Result<A, Status>> + Send + 'static,
{
    let request = without_head(request).map(|body| Timed::<Status>::whole(body, bodies));
    server(bytes_max).unary(Call(call), request).await.map(Body::new)
}

/// A stream for a stream.
pub(super) async fn streaming<Q, A, R>(
    request: Request,
    bodies: &Bodies,
    call: impl FnMut(Streaming<Q>) -> R + Send,
) -> Response
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + Sync + 'static,
    R: Future<Output = Result<Answers<A>, Status>> + Send + 'static,
{
    let request = without_head(request).map(|body| Timed::<Status>::stream(body, bodies));
    server(BODY_BYTES_MAX).streaming(Call(call), request).await.map(Body::new)
}

/// A method that is not served.
pub(super) fn refuse(status: &Status) -> Response {
    status.clone().into_http::<tonic::body::Body>().map(Body::new)
}
