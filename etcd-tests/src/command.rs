//! etcd's own command, unchanged: `etcdctl lock`.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::LockOptions;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::group::Group;
use crate::{Case, cases, within};

/// All cases.
pub const CASES: &[Case] = cases![
    servers_are_healthy,
    commands_run_with_the_lock,
    commands_exclude_each_other,
    commands_wait_for_other_clients,
    interrupted_commands_leave_no_waiter,
    killed_commands_let_the_next_in,
];

async fn servers_are_healthy(group: Arc<Group>) {
    for node in 0..3 {
        let ended = within(group.etcdctl(node).args(["endpoint", "health"]).output()).await.unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
}

async fn commands_run_with_the_lock(group: Arc<Group>) {
    let mut last = 0;
    for node in 0..3 {
        let script = "echo $ETCD_LOCK_KEY $ETCD_LOCK_REV; exit 7";
        let ended = within(group.etcdctl(node).args(["lock", "jobs/nightly", "--", "sh", "-c", script]).output())
            .await
            .unwrap();
        let (output, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        // etcdctl 3.4 says which code it was and exits with 1; later ones pass it on.
        let code = ended.status.code();
        assert!(code == Some(7) || code == Some(1) && errors.contains("exit status 7"), "{code:?} {output} {errors}");
        let (key, revision) = output.trim().split_once(' ').expect("a key and a revision");
        assert!(key.starts_with("jobs/nightly/"), "{key}");
        let revision: i64 = revision.parse().expect("a number");
        assert!(revision > last, "{revision} after {last}");
        last = revision;
    }
}

async fn commands_exclude_each_other(group: Arc<Group>) {
    let file = std::env::temp_dir().join(format!("etcd-tests-count-{}-{:?}", std::process::id(), group.kind));
    std::fs::write(&file, "0 0").unwrap();
    let script = format!(
        "read n last < {0}; sleep 0.15; [ $ETCD_LOCK_REV -gt $last ] && echo $((n+1)) $ETCD_LOCK_REV > {0}",
        file.display()
    );
    let mut running = Vec::new();
    for turn in 0..8 {
        let mut command = group.etcdctl(turn);
        command.args(["lock", "counter", "--", "sh", "-c", &script]);
        running.push(tokio::spawn(async move { within(command.output()).await.unwrap() }));
    }
    for command in running {
        let ended = command.await.unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    let count = std::fs::read_to_string(&file).unwrap();
    let _ = std::fs::remove_file(&file);
    assert!(count.starts_with("8 "), "{count}");
}

async fn commands_wait_for_other_clients(group: Arc<Group>) {
    for holder in 0..2 {
        let mut client = group.client(holder).await;
        let lease = client.lease_grant(60, None).await.unwrap().id();
        let held = client.lock("mixed", Some(LockOptions::new().with_lease(lease))).await.unwrap();
        let mut command = group.etcdctl(0).args(["lock", "mixed", "true"]).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(800)).await;
        assert!(command.try_wait().unwrap().is_none(), "it waits");
        client.unlock(held.key()).await.unwrap();
        assert!(within(command.wait()).await.unwrap().success());
        client.lease_revoke(lease).await.unwrap();
    }
}

/// Starts `etcdctl lock` without a command, which prints its key once it has the lock, and reads that.
async fn holding(group: &Group, node: usize, name: &str) -> (tokio::process::Child, String) {
    let mut command = group.etcdctl(node);
    let mut child = command.args(["lock", "--ttl=5", name]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let key = within(lines.next_line()).await.unwrap().expect("a key");
    // It writes one more line, and would not survive if nobody could read that.
    child.stdout = Some(lines.into_inner().into_inner());
    (child, key)
}

async fn interrupted_commands_leave_no_waiter(group: Arc<Group>) {
    let (holder, key) = holding(&group, 0, "interrupted").await;
    assert!(key.starts_with("interrupted/"), "{key}");
    let mut waiter = group.etcdctl(1).args(["lock", "--ttl=60", "interrupted", "true"]).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(800)).await;
    for child in [&mut waiter, &mut { holder }] {
        interrupt(child);
        assert!(!within(child.wait()).await.unwrap().success() || child.id().is_none());
    }
    let next = within(group.etcdctl(2).args(["lock", "interrupted", "true"]).status()).await.unwrap();
    assert!(next.success());
}

fn interrupt(child: &tokio::process::Child) {
    let pid = rustix::process::Pid::from_raw(child.id().expect("it runs") as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
}

async fn killed_commands_let_the_next_in(group: Arc<Group>) {
    let (mut holder, _key) = holding(&group, 0, "killed").await;
    // It lives on its keepalives for longer than its lease would last.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(holder.try_wait().unwrap().is_none(), "it holds the lock");
    let mut next = group.etcdctl(1).args(["lock", "killed", "true"]).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(next.try_wait().unwrap().is_none(), "the lock is held");
    holder.kill().await.unwrap();
    assert!(within(next.wait()).await.unwrap().success());
}
