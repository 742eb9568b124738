//! The bytes of the line protocol: agents and clients of different builds of one version must understand each other.

use hallpass_agent::line_protocol::{
    ClientLine, LockLine, MemberLine, Request, Response, StatusLine, VERSION, WaitingLine,
};

fn acquire(shared: bool, tries: bool, timeout_ms: Option<u64>) -> Request {
    Request::Acquire { lock: "a/b".to_owned(), shared, tries, timeout_ms, explain: false, hold_only: false }
}

fn locks(prefix: &str, held: bool, after: Option<&str>, limit: Option<usize>) -> Request {
    Request::Locks { prefix: prefix.to_owned(), held, after: after.map(str::to_owned), limit }
}

#[test]
fn requests_are_written_and_read_as_recorded() {
    let recorded = [
        (acquire(false, false, None), r#"{"do":"acquire","lock":"a/b","shared":false,"try":false,"timeout_ms":null}"#),
        (acquire(true, true, Some(5)), r#"{"do":"acquire","lock":"a/b","shared":true,"try":true,"timeout_ms":5}"#),
        (Request::Cancel, r#"{"do":"cancel"}"#),
        (Request::Release { lock: "a/b".to_owned(), fence: 7 }, r#"{"do":"release","lock":"a/b","fence":7}"#),
        (locks("", false, None, None), r#"{"do":"locks"}"#),
        (
            locks("a/", true, Some("a/b"), Some(9)),
            r#"{"do":"locks","prefix":"a/","held":true,"after":"a/b","limit":9}"#,
        ),
        (Request::Members, r#"{"do":"members"}"#),
        (Request::Status, r#"{"do":"status"}"#),
        (Request::Leave { timeout_ms: None }, r#"{"do":"leave"}"#),
        (Request::Leave { timeout_ms: Some(5) }, r#"{"do":"leave","timeout_ms":5}"#),
        (
            Request::Join { address: "h:1".to_owned(), timeout_ms: Some(5) },
            r#"{"do":"join","address":"h:1","timeout_ms":5}"#,
        ),
        (
            Request::Evict { node: "b".to_owned(), ban: true, timeout_ms: None },
            r#"{"do":"evict","node":"b","ban":true}"#,
        ),
        (Request::Admit { name: "b".to_owned(), timeout_ms: None }, r#"{"do":"admit","name":"b"}"#),
        (Request::BanKey { key: "sha256:1".to_owned(), timeout_ms: None }, r#"{"do":"ban_key","key":"sha256:1"}"#),
        (Request::AdmitKey { key: "sha256:1".to_owned(), timeout_ms: None }, r#"{"do":"admit_key","key":"sha256:1"}"#),
        (Request::Break { lock: "x".to_owned(), timeout_ms: None }, r#"{"do":"break","lock":"x"}"#),
        (
            Request::SetClass {
                prefix: "p".to_owned(),
                protocol: "raymond".to_owned(),
                options: vec!["tree=line".to_owned()],
                timeout_ms: None,
            },
            r#"{"do":"set_class","prefix":"p","protocol":"raymond","options":["tree=line"]}"#,
        ),
    ];
    for (request, line) in recorded {
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        assert_eq!(Request::parse(line.as_bytes()).unwrap(), request);
        assert_eq!(Request::parse(format!("{line}\n").as_bytes()).unwrap(), request);
    }
    let short = Request::parse(br#"{"do":"acquire","lock":"a/b"}"#).unwrap();
    assert_eq!(short, acquire(false, false, None), "everything but the name may be left out");
}

#[test]
fn what_is_no_request_is_an_error_of_one_line() {
    for line in [
        &b""[..],
        b"\n",
        b"GET / HTTP/1.1",
        b"{}",
        br#"{"do":"fly"}"#,
        br#"{"do":"fl\ny"}"#,
        br#"{"do":"release"}"#,
        b"\xff\0",
    ] {
        let error = Request::parse(line).unwrap_err().to_string();
        assert!(error.starts_with("the request is not understood: ") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn responses_are_written_and_read_as_recorded() {
    assert_eq!(VERSION, 1);
    let welcome =
        Response::Welcome { version: 1, node: "n".to_owned(), group: "g".to_owned(), ttl_ms: 5000, private: false };
    let client = ClientLine {
        node: "n".to_owned(),
        mode: Some("shared".to_owned()),
        pid: Some(5),
        user: Some("u".to_owned()),
        command: None,
        for_ms: Some(8),
        client: None,
    };
    let client_text = r#"{"node":"n","mode":"shared","pid":5,"user":"u","command":null,"for_ms":8}"#;
    let lock = LockLine {
        name: "a/b".to_owned(),
        protocol: "raymond".to_owned(),
        held: Some("shared".to_owned()),
        holders: 2,
        waiters: 1,
        fence: "7".to_owned(),
        place: "here".to_owned(),
        held_by: vec![client.clone()],
        waiting: Vec::new(),
    };
    let member = MemberLine {
        id: 1,
        name: None,
        address: "host:1".to_owned(),
        incarnation: 3,
        connected: false,
        this: true,
        trouble: Some("t".to_owned()),
        state: "member".to_owned(),
        voter: true,
        steward: false,
        session_ms: Some(8),
        keys: vec!["sha256:1".to_owned()],
    };
    let status = StatusLine {
        group: "g".to_owned(),
        node: "n".to_owned(),
        complete: true,
        epoch: Some(9),
        encrypted: false,
        members: 3,
        connected: 2,
        clients: 1,
        locks: 4,
        messages: 5,
        grants: 6,
        fences_left: 7,
        private: true,
        view: "open".to_owned(),
        steward: Some("n".to_owned()),
        voters: vec!["n".to_owned()],
        session_ms: None,
        ttl_ms: 5000,
        waits_for: None,
        banned: vec!["x".to_owned()],
        banned_keys: vec!["sha256:1".to_owned()],
    };
    let recorded = [
        (welcome, r#"{"is":"welcome","version":1,"node":"n","group":"g","ttl_ms":5000,"private":false}"#),
        (
            Response::Granted { lock: "a/b".to_owned(), fence: 7, valid_until_ns: Some(9), ttl_ms: 5000 },
            r#"{"is":"granted","lock":"a/b","fence":7,"valid_until_ns":9,"ttl_ms":5000}"#,
        ),
        (Response::Session { valid_until_ns: None }, r#"{"is":"session","valid_until_ns":null}"#),
        (
            Response::AtRisk { lock: "a/b".to_owned(), fence: 7, valid_until_ns: 9, broken: false },
            r#"{"is":"at_risk","lock":"a/b","fence":7,"valid_until_ns":9,"broken":false}"#,
        ),
        (Response::Lost { lock: "a/b".to_owned(), fence: 7 }, r#"{"is":"lost","lock":"a/b","fence":7}"#),
        (Response::Done, r#"{"is":"done"}"#),
        (Response::Busy { why: None }, r#"{"is":"busy"}"#),
        (Response::Late { why: Some("w".to_owned()) }, r#"{"is":"late","why":"w"}"#),
        (Response::Cancelled, r#"{"is":"cancelled"}"#),
        (Response::Released { held: true }, r#"{"is":"released","held":true}"#),
        (
            Response::Locks { locks: vec![lock], more: 4 },
            &format!(
                r#"{{"is":"locks","locks":[{{"name":"a/b","protocol":"raymond","held":"shared","holders":2,"waiters":1,"fence":"7","where":"here","held_by":[{client_text}],"waiting":[]}}],"more":4}}"#
            ),
        ),
        (
            Response::Waiting(WaitingLine { held_by: vec![client], missing: vec!["m".to_owned()], before: 2 }),
            &format!(r#"{{"is":"waiting","held_by":[{client_text}],"missing":["m"],"before":2}}"#),
        ),
        (Response::Ending { why: "w".to_owned() }, r#"{"is":"ending","why":"w"}"#),
        (
            Response::Members { members: vec![member] },
            r#"{"is":"members","members":[{"id":1,"name":null,"address":"host:1","incarnation":3,"connected":false,"this":true,"trouble":"t","state":"member","voter":true,"steward":false,"session_ms":8,"keys":["sha256:1"]}]}"#,
        ),
        (
            Response::Status(Box::new(status)),
            r#"{"is":"status","group":"g","node":"n","complete":true,"epoch":9,"encrypted":false,"members":3,"connected":2,"clients":1,"locks":4,"messages":5,"grants":6,"fences_left":7,"private":true,"view":"open","steward":"n","voters":["n"],"session_ms":null,"ttl_ms":5000,"waits_for":null,"banned":["x"],"banned_keys":["sha256:1"]}"#,
        ),
        (Response::Leaving, r#"{"is":"leaving"}"#),
        (Response::Error { text: "t".to_owned() }, r#"{"is":"error","text":"t"}"#),
    ];
    for (response, line) in recorded {
        assert_eq!(serde_json::to_string(&response).unwrap(), line);
        assert_eq!(serde_json::from_str::<Response>(line).unwrap(), response);
    }
}
