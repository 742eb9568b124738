use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};

/// A process that is killed when this is dropped, so that a failed test leaves none behind.
#[derive(Debug)]
pub struct StopOnDrop(pub Child);

impl Deref for StopOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for StopOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes the settings of hallpass that the tests were started with out of a command's environment.
pub fn without_settings(command: &mut Command) -> &mut Command {
    let settings = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HALLPASS_"));
    for (name, _) in settings {
        command.env_remove(name);
    }
    command
}
