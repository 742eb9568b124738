//! The machine's agent, which root starts for everybody: in a mount namespace of its own, where nothing of the real machine is touched.

use std::fs;
use std::process::Command;

use crate::user::{Ran, User, copy_program, is_root, skipped};

/// Functions for the scripts below: `as USER COMMAND ..` and `expect CODE TEXT COMMAND ..`.
const PRELUDE: &str = r#"
set -eu
# Whatever fails, nothing is left running.
trap 'kill -KILL $(jobs -p) 2>/dev/null || true' EXIT
# Agents with the same paths know of each other in whatever namespace they are: there is one such machine at a time.
exec 9>>"${TMPDIR:-/tmp}/hallpass-machine.lock"; flock 9
mount -t proc none /proc
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mount -t tmpfs none /var/tmp
chmod 1777 /var/tmp
# Where root kept its private agent once.
former=$(getent passwd 0 | cut -d: -f6)
case "$PWD" in "$former"/*) ;; *) mount -t tmpfs none "$former" ;; esac
former=$former/.local/state/hallpass
as() { user=$1; shift; setpriv --reuid "$user" --regid "$user" --clear-groups "$@"; }
expect() {
    code=$1 text=$2; shift 2
    got=0; said=$("$@" 2>&1 </dev/null) || got=$?
    case "$got:$said" in
        "$code:"*"$text"*) ;;
        *) echo "expected $code with '$text', got $got: $said; command: $*" >&2; exit 1 ;;
    esac
}
answers() {
    for _ in $(seq 300); do "$@" >/dev/null 2>&1 </dev/null && return; sleep 0.05; done
    echo "never answered: $*" >&2; exit 1
}
# The fence of the next grant of lock x.
fence() { "$@" ./hallpass run x --timeout 30s -- sh -c 'echo $HALLPASS_FENCE'; }
works() { grep -qs '^State:.[RSD]' "/proc/$1/status"; }
end() { kill -"$1" "$2"; wait "$2" || true; }
"#;

/// Somebody who may not read the machine's configuration, or not even look into its directory, is on a machine that has one.
#[test]
fn a_machine_with_a_configuration_has_no_private_agents() {
    script(
        "configured",
        r#"
cp -a /etc etc && mount --bind etc /etc
mkdir -p -m 0700 /etc/hallpass && echo "name = 'a'" >/etc/hallpass/hallpass.toml
for mode in 700 755; do
    chmod $mode /etc/hallpass
    chmod 600 /etc/hallpass/hallpass.toml
    expect 69 'no agent answers at /run/hallpass/agent.sock' as 70007 ./hallpass run x -- touch entered
done
chmod 644 /etc/hallpass/hallpass.toml
expect 69 'no agent answers at /run/hallpass/agent.sock' as 70007 ./hallpass run x -- touch entered
test ! -e entered
./hallpass agent --socket-group 70007 2>agent.log & agent=$!
answers test -S /run/hallpass/agent.sock
chmod 700 /etc/hallpass
expect 0 '' as 70007 ./hallpass run x -- true
end TERM $agent
"#,
    );
}

/// A full disk and a directory that cannot be written are reported in one line, and nothing is granted.
#[test]
fn a_user_whose_directory_cannot_be_written_is_told_so() {
    script(
        "shortage",
        r#"
mount -t tmpfs -o size=8m none /var/tmp && chmod 1777 /var/tmp
head -c 8388608 /dev/zero >/var/tmp/filler || true
expect 69 'No space left on device' as 70005 ./hallpass run x -- touch entered
rm /var/tmp/filler
expect 0 '' as 70005 ./hallpass run x -- true
expect 0 '' as 70005 ./hallpass leave
rm -r /var/tmp/hallpass-70005
mkdir -m 0500 /var/tmp/hallpass-70005 && chown 70005 /var/tmp/hallpass-70005
expect 69 'Permission denied' as 70005 ./hallpass run x -- touch entered
mount -t tmpfs -o ro none /var/tmp
expect 69 'Read-only file system' as 70006 ./hallpass run x -- touch entered
test ! -e entered
"#,
    );
}

/// Runs a script as root, with directories of its own in place of the machine's.
fn script(name: &str, text: &str) {
    let in_namespaces = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh"]);
        command
    };
    // Root of a container may not be allowed to.
    let mounts = "mount -t proc none /proc && mount -t tmpfs none /run";
    let may_mount = || in_namespaces().args(["-c", mounts]).output().is_ok_and(|output| output.status.success());
    if !is_root() || !may_mount() {
        return skipped("it needs root who may mount, to start the machine's agent in a mount namespace");
    }
    let user = User::new(name);
    // The directory of the program may be closed to others.
    copy_program(env!("CARGO_BIN_EXE_hallpass"), &user.home.join("hallpass"));
    fs::write(user.home.join("script"), format!("{PRELUDE}{text}")).unwrap();
    let mut command = in_namespaces();
    command.arg("./script");
    user.settings(&mut command);
    command.env_remove("HALLPASS_CONFIG").env("PORT", hallpass_testkit::free_ports(2).to_string());
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

#[test]
fn a_machine_that_belongs_to_a_group_has_no_private_agents() {
    script(
        "machine",
        r#"
peers="127.0.0.1:$PORT,127.0.0.1:$((PORT + 1))"
start_a() { ./hallpass agent --name a --listen 127.0.0.1:$PORT --peers "$peers" --socket-group 70001 2>a.log & a=$!; }
start_a
./hallpass agent --name b --listen 127.0.0.1:$((PORT + 1)) --peers "$peers" --socket b.sock --data b.data 2>b.log & b=$!
answers test -S /run/hallpass/agent.sock
answers as 70001 ./hallpass run y --timeout 1s -- true
expect 69 'no permission' as 70002 ./hallpass run x -- true
expect 1 "only the agent's own user and root" as 70001 ./hallpass leave
grep -q 'audit: refused what="leave" who="user [^"]*70001.*" from="unix socket, pid [0-9]*" result="refused"' a.log
./hallpass run x --socket b.sock -- sleep 60 & holder=$!
answers sh -c './hallpass locks --held --socket b.sock | grep -q sleep'
expect 75 'not free' as 70001 ./hallpass run x --try -- true
for signal in TERM KILL; do
    end $signal $a
    for user in 0 70001 70002; do
        expect 69 '' as $user ./hallpass run x -- touch entered
    done
    test ! -e entered
    test $signal = KILL || start_a
    # Two of the same number never run at once: a restarted member waits for the others, and is enough for the mark.
    test $signal = KILL || answers test -S /run/hallpass/agent.sock
done
# Others cannot give its place up.
expect 1 'cannot remove' as 70001 ./hallpass leave
rm -f /run/hallpass/agent.sock
expect 69 "is a member of group 'hallpass' and does not run" as 70001 ./hallpass run x -- true
expect 0 '' ./hallpass leave
expect 0 '' as 70001 ./hallpass run x -- true
end TERM $b; wait $holder || true
"#,
    );
}

#[test]
fn a_private_agent_and_the_machines_agent_do_not_both_grant() {
    script(
        "both",
        r#"
expect 0 '' as 70003 ./hallpass run x -- true
# Its command is inside while the private agent is stopped, ends, or was just killed.
as 70003 ./hallpass run x -- sh -c 'echo $$ >/var/tmp/held; trap "" TERM; while :; do sleep 0.05; done; true' 2>holder.log & holder=$!
answers test -s /var/tmp/held
inside=$(cat /var/tmp/held)
./hallpass agent --socket-group 70003 2>agent.log & agent=$!
answers test -S /run/hallpass/agent.sock
expect 69 'a private agent of this user still runs' as 70003 ./hallpass run x -- true
as 70003 ./hallpass leave --socket /var/tmp/hallpass-70003/agent.sock >/dev/null & leave=$!
while works $inside; do
    as 70003 ./hallpass run x --try -- touch /var/tmp/entered 2>/dev/null </dev/null || true
    if test -e /var/tmp/entered && works $inside; then echo "two inside" >&2; exit 1; fi
done
wait $leave; wait $holder || true
expect 0 '' as 70003 ./hallpass run x -- true
test ! -e /var/tmp/hallpass-70003/agent.sock
end TERM $agent
# One that root has ended leaves nothing that keeps others out.
test ! -e /run/hallpass
expect 0 '' as 70004 ./hallpass run x -- true
test -e /var/tmp/hallpass-70004/agent.sock
as 70003 ./hallpass leave || true; as 70004 ./hallpass leave
"#,
    );
}

/// It was killed, or has not been started yet: its socket, its mark or its configuration is there, or may be there.
#[test]
fn an_agent_of_the_machine_that_does_not_run_is_not_replaced_by_a_private_one() {
    script(
        "absent",
        r#"
refused() { expect 69 "$1" as 70005 ./hallpass run x -- true; test ! -e /var/tmp/hallpass-70005; }
./hallpass agent --socket-group 70005 2>agent.log & agent=$!
answers test -S /run/hallpass/agent.sock
expect 0 '' as 70005 ./hallpass run x -- true
end KILL $agent
refused 'no agent answers at /run/hallpass/agent.sock'
rm -r /run/hallpass
echo g >/var/lib/hallpass/member
refused "is a member of group 'g' and does not run"
chmod 700 /var/lib/hallpass
refused 'may be a member of a group'
rm -r /var/lib/hallpass
mount -t tmpfs none /etc
touch /etc/passwd
mkdir -m 700 /etc/hallpass
touch /etc/hallpass/hallpass.toml
refused 'no agent answers at /run/hallpass/agent.sock'
rm -r /etc/hallpass
expect 0 '' as 70005 ./hallpass run x -- true
test -e /var/tmp/hallpass-70005/agent.sock
as 70005 ./hallpass leave
"#,
    );
}

/// The machine's agent, and the private one that `run` starts for root, serve the same locks.
#[test]
fn roots_fences_rise_whichever_agent_serves_them() {
    script(
        "rise",
        r#"
last=0
rises() {
    now=$(fence env)
    test "$now" -gt "$last" || { echo "fence $now after $last: $1" >&2; exit 1; }
    last=$now
}
for round in 1 2; do
    ./hallpass agent 2>>agent.log & agent=$!
    answers test -S /run/hallpass/agent.sock
    rises "the machine's agent"; rises "the machine's agent"
    end TERM $agent
    rises "a private agent"
    expect 0 '' ./hallpass leave
done
# It is root's alone: others have private agents of their own.
rises "a private agent"
expect 0 '' as 70008 ./hallpass run x -- true
as 70008 ./hallpass leave
# The machine's agent takes over when it has ended.
./hallpass agent 2>>agent.log & agent=$!
expect 0 '' ./hallpass leave
answers test -S /run/hallpass/agent.sock
rises "the machine's agent"
end TERM $agent
"#,
    );
}

/// Its socket's directory is emptied, or its data too: it makes them again, and meanwhile nobody else lets anybody in.
#[test]
fn nobody_starts_an_agent_beside_the_machines_that_lost_its_files() {
    script(
        "emptied",
        r#"
./hallpass agent --socket-group 70009 2>agent.log & agent=$!
answers test -S /run/hallpass/agent.sock
./hallpass run x -- sh -c 'touch held; until test -e end; do sleep 0.02; done' 2>holder.log & holder=$!
answers test -e held
for files in /run/hallpass "/run/hallpass /var/lib/hallpass" /run/hallpass; do
    for user in 0 70009; do
        rm -r $files
        as $user ./hallpass run x --try -- touch /var/tmp/entered 2>>tries.log </dev/null || true
        if test -e /var/tmp/entered; then echo "two inside" >&2; cat tries.log >&2; exit 1; fi
        answers test -S /run/hallpass/agent.sock
        answers test -e /var/lib/hallpass/data/running
    done
done
touch end; wait $holder
# One that is stopped cannot make them again: nobody enters beside it either.
kill -STOP $agent
rm -r /run/hallpass
for user in 0 70009; do
    expect 69 "the machine's agent" as $user ./hallpass run x --timeout 1s -- touch /var/tmp/entered
done
test ! -e /var/tmp/entered
kill -CONT $agent
answers test -S /run/hallpass/agent.sock
expect 0 '' as 70009 ./hallpass run x -- true
end TERM $agent
"#,
    );
}

/// Root's private agent had its data in root's home directory in earlier releases.
#[test]
fn what_roots_agent_kept_where_it_was_before_counts() {
    script(
        "former",
        r#"
mkdir -p -m 700 "$former"
echo "state = '$former'" >before.toml
last=0
for round in 1 2 3; do
    last=$(fence env HALLPASS_CONFIG=$PWD/before.toml)
    test $round = 3 || expect 0 '' env HALLPASS_CONFIG=$PWD/before.toml ./hallpass leave
done
# It still runs: its commands would know nothing of those of another one.
expect 69 'still runs where it was' ./hallpass run x -- touch entered
expect 75 'still runs where it was' ./hallpass agent
test ! -e entered
expect 0 '' env HALLPASS_CONFIG=$PWD/before.toml ./hallpass leave
now=$(fence env)
test "$now" -gt "$last" || { echo "fence $now after $last" >&2; exit 1; }
expect 0 '' ./hallpass leave
last=$now; now=$(fence env)
test "$now" -gt "$last" || { echo "fence $now after $last, at the second start" >&2; exit 1; }
expect 0 '' ./hallpass leave
# The same where the machine's agent has a history of its own, which is shorter.
rm -r /var/lib/hallpass "$former"
./hallpass agent 2>agent.log & agent=$!
answers test -S /run/hallpass/agent.sock
fence env >/dev/null
end TERM $agent
mkdir -p -m 700 "$former"
for round in 1 2 3 4; do
    last=$(fence env HALLPASS_CONFIG=$PWD/before.toml)
    expect 0 '' env HALLPASS_CONFIG=$PWD/before.toml ./hallpass leave
done
./hallpass agent 2>agent.log & agent=$!
answers test -S /run/hallpass/agent.sock
now=$(fence env)
test "$now" -gt "$last" || { echo "fence $now after $last, by the machine's agent" >&2; exit 1; }
end TERM $agent
"#,
    );
}

/// What a private agent has kept does not make a group of one of an agent that is to found one with others.
#[test]
fn an_agent_with_peers_founds_its_group_where_roots_private_agent_was() {
    script(
        "peers",
        r#"
last=$(fence env)
expect 0 '' ./hallpass leave
peers="127.0.0.1:$PORT,127.0.0.1:$((PORT + 1))"
./hallpass agent --name a --listen 127.0.0.1:$PORT --peers "$peers" 2>a.log & a=$!
./hallpass agent --name b --listen 127.0.0.1:$((PORT + 1)) --peers "$peers" --socket b.sock --data b.data 2>b.log & b=$!
answers test -S /run/hallpass/agent.sock
now=$(fence env)
test "$now" -gt "$last" || { echo "fence $now after $last" >&2; exit 1; }
./hallpass members --json | grep -c '"name"' | grep -qx 2
end TERM $a; end TERM $b
"#,
    );
}
