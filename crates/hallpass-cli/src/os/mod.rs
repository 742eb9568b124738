//! Everything that depends on the operating system, behind plain functions: a port to another system changes this module
//! and no other.
//!
//! `files`, `process` and `signals` hold for every Unix. What only Linux offers is in `linux`; other Unixes get `fallback`,
//! which has the same functions and says in the docs of each what is lost.

mod files;
mod memory;
mod process;
mod signals;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod native;
#[cfg(not(target_os = "linux"))]
#[path = "fallback.rs"]
mod native;

pub(crate) use files::{
    SYSTEM_CONFIG, SYSTEM_SOCKET, SYSTEM_STATE, copy_ownership, create_private_directory, create_private_file,
    create_public_directory, environment_path, former_directories, host_name, is_root, is_shared,
    is_writable_by_user_only, owner, user_directory,
};
pub(crate) use memory::Memory;
pub(crate) use native::{
    adopt_orphans, any_descendant_except, children, die_with_parent, kill_descendants_except, name_process,
    protect_memory,
};
pub(crate) use process::{
    Process, close_standard_output, control_connection, exec, exit_code, is_closed, is_readable, keep_exit_statuses,
    leave_session, make_inheritable, raise_descriptor_limit, reap_all_children, reap_children, receive_descriptors,
    send_descriptors, standard_input, this_program_again,
};
pub(crate) use signals::{ForwardedSignals, ReceivedSignal, interrupted, shutdown_requested};
