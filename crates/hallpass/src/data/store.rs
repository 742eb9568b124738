//! A file that maps numbers to bytes. A change is on disk when the call returns, all of it or nothing.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use hallpass_node::Write;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");

/// The open file.
pub(super) struct Store(Database);

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// The disk is full, for example. Nothing was changed.
    #[error("{0}")]
    Io(String),
    /// The file does not contain what was written.
    #[error("it is damaged ({0})")]
    Damaged(String),
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::Io(error) if error.kind() != std::io::ErrorKind::InvalidData => Self::Io(error.to_string()),
            error @ (redb::Error::DatabaseAlreadyOpen | redb::Error::PreviousIo) => Self::Io(error.to_string()),
            error => Self::Damaged(error.to_string()),
        }
    }
}

impl Store {
    /// Creates a file with these entries. It must not exist.
    pub(super) fn create(path: &Path, entries: Vec<(u64, Vec<u8>)>) -> Result<(), StoreError> {
        let store = Self(Database::create(path)?);
        store.apply(&[Write { number: 0, remove: 0..0, put: entries }])
    }

    /// Opens an existing file and reads all of it. Refuses a file that is damaged anywhere.
    pub(super) fn open(path: &Path) -> Result<(Self, BTreeMap<u64, Vec<u8>>), StoreError> {
        // Damage in some places makes the library panic instead of returning an error.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut database = Database::open(path)?;
            if !database.check_integrity()? {
                tracing::warn!(file = %path.display(), "the last process was killed while it wrote; the file has been checked");
            }
            let store = Self(database);
            let entries = store.entries()?;
            Ok((store, entries))
        }));
        opened.unwrap_or_else(|_| Err(StoreError::Damaged("its structure cannot be read".to_owned())))
    }

    pub(super) fn entries(&self) -> Result<BTreeMap<u64, Vec<u8>>, StoreError> {
        let mut entries = BTreeMap::new();
        for entry in self.0.begin_read()?.open_table(TABLE)?.iter()? {
            let (key, value) = entry?;
            let (key, value) = (key.value(), value.value());
            let unsealed = unseal(key, value).ok_or_else(|| StoreError::Damaged(format!("the checksum of {key}")))?;
            entries.insert(key, unsealed.to_vec());
        }
        Ok(entries)
    }

    /// Applies these changes in order, in one transaction.
    pub(super) fn apply(&self, writes: &[Write]) -> Result<(), StoreError> {
        let transaction = self.0.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for Write { remove, put, .. } in writes {
                if !remove.is_empty() {
                    table.retain_in(remove.clone(), |_, _| false)?;
                }
                for (key, value) in put {
                    table.insert(key, seal(*key, value).as_slice())?;
                }
            }
        }
        Ok(transaction.commit()?)
    }
}

/// Puts a checksum of the key and the value in front of the value.
fn seal(key: u64, value: &[u8]) -> Vec<u8> {
    [&checksum(key, value).to_be_bytes(), value].concat()
}

fn unseal(key: u64, sealed: &[u8]) -> Option<&[u8]> {
    let (sum, value) = sealed.split_first_chunk::<8>()?;
    (u64::from_be_bytes(*sum) == checksum(key, value)).then_some(value)
}

/// FNV-1a: it detects damage, not manipulation.
fn checksum(key: u64, value: &[u8]) -> u64 {
    let bytes = key.to_be_bytes();
    bytes
        .iter()
        .chain(value)
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(remove: std::ops::Range<u64>, put: &[(u64, &[u8])]) -> Write {
        Write { number: 0, remove, put: put.iter().map(|(key, value)| (*key, value.to_vec())).collect() }
    }

    fn scratch(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("hallpass-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn what_is_removed_goes_before_what_is_put() {
        let path = scratch("order");
        Store::create(&path, vec![(1, b"one".to_vec()), (7, b"seven".to_vec())]).unwrap();
        let (store, _) = Store::open(&path).unwrap();
        store
            .apply(&[write(5..10, &[(6, b"six")]), write(6..7, &[(8, b"eight")]), write(0..0, &[(1, b"uno")])])
            .unwrap();
        drop(store);
        let (_store, entries) = Store::open(&path).unwrap();
        assert_eq!(entries, BTreeMap::from([(1, b"uno".to_vec()), (8, b"eight".to_vec())]));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_is_damaged_anywhere_is_refused_or_read_in_full() {
        let path = scratch("damage");
        let entries: Vec<_> = (0..200_u64).map(|key| (key, vec![key as u8; 300])).collect();
        Store::create(&path, entries.clone()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let entries = BTreeMap::from_iter(entries);
        let (mut refused, mut read) = (0, 0);
        let step = whole.len() / 150;
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        for at in (0..whole.len()).step_by(step) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            std::fs::write(&path, bytes).unwrap();
            match Store::open(&path) {
                Ok((_, found)) => {
                    read += 1;
                    assert!(found == entries, "byte {at}: something else was read");
                }
                Err(_) => refused += 1,
            }
        }
        for length in [0, 1, 100, whole.len() / 3, whole.len() / 2, whole.len() - 4096] {
            std::fs::write(&path, &whole[..length]).unwrap();
            if let Ok((_, found)) = Store::open(&path) {
                assert!(found == entries, "cut at {length}: something else was read");
            }
        }
        std::panic::set_hook(hook);
        assert!(refused > 10 && read > 0, "{refused} refused, {read} read");
        std::fs::remove_file(path).unwrap();
    }

    /// A disk that can be full.
    #[derive(Clone, Debug, Default)]
    struct Disk(std::sync::Arc<(redb::backends::InMemoryBackend, std::sync::atomic::AtomicBool)>);

    impl Disk {
        fn fill(&self, is_full: bool) {
            self.0.1.store(is_full, std::sync::atomic::Ordering::Relaxed);
        }

        fn check(&self) -> std::io::Result<()> {
            let is_full = self.0.1.load(std::sync::atomic::Ordering::Relaxed);
            if is_full { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
    }

    impl redb::StorageBackend for Disk {
        fn len(&self) -> std::io::Result<u64> {
            self.0.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
            self.0.0.read(offset, out)
        }

        fn set_len(&self, len: u64) -> std::io::Result<()> {
            self.0.0.set_len(len)
        }

        fn sync_data(&self) -> std::io::Result<()> {
            self.check()
        }

        fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
            self.check().and_then(|()| self.0.0.write(offset, data))
        }
    }

    #[test]
    fn a_full_disk_is_an_error_and_loses_nothing() {
        let disk = Disk::default();
        let open = || Store(Database::builder().create_with_backend(disk.clone()).unwrap());
        let store = open();
        store.apply(&[write(0..0, &[(1, b"one")])]).unwrap();
        disk.fill(true);
        for _ in 0..2 {
            let error = store.apply(&[write(0..0, &[(2, b"two")])]).unwrap_err();
            assert!(matches!(error, StoreError::Io(_)), "{error}");
        }
        drop(store);
        disk.fill(false);
        let store = open();
        assert_eq!(store.entries().unwrap(), BTreeMap::from([(1, b"one".to_vec())]));
        store.apply(&[write(0..0, &[(2, b"two")])]).unwrap();
    }

    #[test]
    fn a_value_under_another_key_is_damage() {
        assert_eq!(unseal(4, &seal(4, b"x")), Some(&b"x"[..]));
        assert_eq!(unseal(5, &seal(4, b"x")), None);
        assert_eq!(unseal(4, b"short"), None);
    }
}
