//! A storage that refuses writes and reads of a holder who has lost the lock: `cargo run -p hallpass --example fenced_write`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use hallpass::Node;

/// A file with a value and the fence of its last write.
struct Storage(PathBuf);

impl Storage {
    /// Writes the value, unless a later holder of the lock has written before.
    fn write(&self, fence: u64, value: &str) -> std::io::Result<()> {
        let mut file = self.open()?;
        let (last, _) = read(&mut file)?;
        if fence < last {
            return Err(std::io::Error::other(format!("fence {fence} is too old: {last} has written")));
        }
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{fence} {value}")?;
        file.sync_all()
    }

    /// Reads the value, unless somebody has written who came after the reader: the next writer may have the reader's own
    /// fence. A read leaves the fence as it is, since readers who hold the lock together may have different ones.
    fn read(&self, fence: u64) -> std::io::Result<String> {
        let (last, value) = read(&mut self.open()?)?;
        if fence <= last {
            return Err(std::io::Error::other(format!("fence {fence} is too old to read: {last} has written")));
        }
        Ok(value)
    }

    /// Comparing and writing must not be interrupted by another write: here the file's own lock sees to it, until the file
    /// is closed.
    fn open(&self) -> std::io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.0)?;
        file.lock()?;
        Ok(file)
    }
}

fn read(file: &mut File) -> std::io::Result<(u64, String)> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let (fence, value) = text.split_once(' ').unwrap_or(("0", ""));
    Ok((fence.parse().map_err(std::io::Error::other)?, value.to_owned()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("hallpass-fenced-write-{}", std::process::id()));
    let shown = show(&directory).await;
    std::fs::remove_dir_all(directory)?;
    shown
}

async fn show(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let start = || Node::builder().data(directory.join("node")).start();
    let node = start().await?;
    let storage = Storage(directory.join("value"));

    let slow = node.lock("value").acquire().await?;
    storage.write(slow.fence(), "first")?;
    println!("fence {}: wrote 'first', and then stands still for a long time", slow.fence());

    // Meanwhile its node ends, and the lock is lost. The node's data directory makes later fences larger.
    node.stop().await;
    let node = start().await?;
    let quick = node.lock("value").acquire().await?;
    storage.write(quick.fence(), "second")?;
    println!("fence {}: wrote 'second'", quick.fence());

    match storage.write(slow.fence(), "late") {
        Err(error) => println!("fence {}: refused: {error}", slow.fence()),
        Ok(()) => return Err("a late write was accepted".into()),
    }
    assert!(slow.is_lost());
    quick.release().await?;

    let reader = node.lock("value").acquire_shared().await?;
    let value = storage.read(reader.fence())?;
    println!("fence {}: read '{value}', shared", reader.fence());
    assert_eq!(value, "second");
    assert!(storage.read(slow.fence()).is_err(), "a late read is refused as well");
    Ok(())
}
