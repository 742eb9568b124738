use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// What never changes during a run: cheap to clone, equal by definition, and no part of a state's hash.
#[derive(Debug)]
pub(crate) struct Constant<T>(Arc<T>);

impl<T> Constant<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Clone for Constant<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Constant<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> PartialEq for Constant<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Constant<T> {}

impl<T> Hash for Constant<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
