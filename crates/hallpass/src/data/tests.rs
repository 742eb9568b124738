use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hallpass-data-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_directory_keeps_its_node_and_counts_its_starts() {
    let scratch = Scratch::new("counts");
    let first = DataDirectory::open(&scratch.0).unwrap();
    let (node, place) = (first.started().node, os::place(&scratch.0));
    assert!(node.0 != 0 && first.started().predecessor_is_dead, "there was none");
    assert_eq!((first.started().incarnation.get(), first.started().epoch_floor), (1, 0));
    first.write(&[Write { number: 1, remove: 0..0, put: vec![(100, b"entry".to_vec())] }]).unwrap();
    drop(first);
    let second = DataDirectory::open(&scratch.0).unwrap();
    let started = second.started();
    assert_eq!((started.node, started.incarnation.get()), (node, 2));
    assert_eq!(started.stored[&100], b"entry");
    assert_eq!(started.stored[&keys::INCARNATION], 2_u32.to_be_bytes());
    assert_eq!(started.predecessor_is_dead, place.is_some());
    assert_ne!(DataDirectory::open(Scratch::new("other").0.clone()).unwrap().started().node, node);
}

/// Of a copy nobody knows whether the process with the original still runs. Once the node has taken part it does not matter.
#[test]
fn a_copied_directory_proves_nothing_about_earlier_processes() {
    let (scratch, copy) = (Scratch::new("original"), Scratch::new("copy"));
    let original = DataDirectory::open(&scratch.0).unwrap();
    os::create_private_directory(&copy.0).unwrap();
    std::fs::copy(scratch.0.join(FILE), copy.0.join(FILE)).unwrap();
    for _ in 0..2 {
        let open = DataDirectory::open(&copy.0).unwrap();
        assert_eq!(open.started().node, original.started().node);
        assert!(!open.started().predecessor_is_dead);
    }
    DataDirectory::open(&copy.0).unwrap().settle().unwrap();
    assert_eq!(DataDirectory::open(&copy.0).unwrap().started().predecessor_is_dead, os::place(&copy.0).is_some());
}

#[test]
fn a_directory_of_an_earlier_version_gives_its_number() {
    let scratch = Scratch::new("earlier");
    os::create_private_directory(&scratch.0).unwrap();
    let open = |text: &[u8]| {
        std::fs::write(scratch.0.join(OLD_FILE), text).unwrap();
        DataDirectory::open(&scratch.0).map(|open| open.started().epoch_floor).map_err(|error| error.to_string())
    };
    assert_eq!(open(b"7000000\n"), Ok(7_000_000));
    let end = Fence::EPOCH_MAX.to_string();
    for (text, expected) in [
        (&b"seven"[..], "does not contain a number"),
        (b"\xff\xfe", "cannot read 'incarnation'"),
        (end.as_bytes(), "remove the file 'incarnation'"),
    ] {
        let error = open(text).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        assert_eq!(std::fs::read(scratch.0.join(OLD_FILE)).unwrap(), text, "nothing was stored");
    }
}

#[test]
fn a_damaged_directory_is_refused_and_left_as_it_is() {
    let scratch = Scratch::new("damaged");
    drop(DataDirectory::open(&scratch.0).unwrap());
    let file = scratch.0.join(FILE);
    let whole = std::fs::read(&file).unwrap();
    for bytes in [&b""[..], b"garbage", &whole[..whole.len() / 2]] {
        std::fs::write(&file, bytes).unwrap();
        let error = DataDirectory::open(&scratch.0).unwrap_err().to_string();
        assert!(error.contains("it is damaged") && error.contains("start a new node"), "{error}");
        assert!(error.contains("hallpass recover") && !error.contains('\n'), "{error}");
        assert_eq!(std::fs::read(&file).unwrap().len(), bytes.len());
    }
    std::fs::write(&file, whole).unwrap();
    assert_eq!(DataDirectory::open(&scratch.0).unwrap().started().incarnation.get(), 2);
}

/// A process that ended while it made the file has left a draft.
#[test]
fn a_draft_is_made_again() {
    let scratch = Scratch::new("draft");
    os::create_private_directory(&scratch.0).unwrap();
    std::fs::write(scratch.0.join(DRAFT), b"half").unwrap();
    assert_eq!(DataDirectory::open(&scratch.0).unwrap().started().incarnation.get(), 1);
}

#[test]
fn a_directory_whose_files_were_removed_or_replaced_is_not_intact_and_can_be_repaired() {
    let scratch = Scratch::new("intact");
    let open = DataDirectory::open(&scratch.0).unwrap();
    open.write(&[Write { number: 1, remove: 0..0, put: vec![(9, b"nine".to_vec())] }]).unwrap();
    assert!(open.is_intact());
    for what in [FILE, LOCK] {
        std::fs::remove_file(scratch.0.join(what)).unwrap();
        assert!(!open.is_intact(), "{what} was removed");
        open.repair().unwrap();
        assert!(open.is_intact());
    }
    std::fs::remove_dir_all(&scratch.0).unwrap();
    open.repair().unwrap();
    open.write(&[Write { number: 2, remove: 0..0, put: vec![(10, b"ten".to_vec())] }]).unwrap();
    assert!(matches!(DataDirectory::open(&scratch.0), Err(StartError::InUse(_))));
    let node = open.started().node;
    drop(open);
    let again = DataDirectory::open(&scratch.0).unwrap();
    assert_eq!((again.started().node, again.started().incarnation.get()), (node, 2));
    assert_eq!((&again.started().stored[&9][..], &again.started().stored[&10][..]), (&b"nine"[..], &b"ten"[..]));
    std::fs::remove_dir_all(&scratch.0).unwrap();
    let other = DataDirectory::open(&scratch.0).unwrap();
    assert!(!again.is_intact() && other.is_intact(), "replaced");
    assert!(again.repair().is_err());
}
