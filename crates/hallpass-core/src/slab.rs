/// Values by small numbers that stay the same as long as the value is there. The numbers of removed values are used again,
/// the last one first, so that nothing is allocated in the long run.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// True if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All keys are below this number.
    pub fn keys(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The key that the next [`insert`](Self::insert) will return.
    pub fn vacant_key(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.entries.len() as u32)
    }

    /// Adds a value and returns its key.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(key) = self.free.pop() {
            self.entries[key as usize] = Some(value);
            return key;
        }
        self.entries.push(Some(value));
        (self.entries.len() - 1) as u32
    }

    /// Takes the value out, if there is one.
    #[inline]
    pub fn remove(&mut self, key: u32) -> Option<T> {
        let value = self.entries.get_mut(key as usize)?.take()?;
        self.free.push(key);
        Some(value)
    }

    /// The value of this key, if there is one.
    #[inline]
    pub fn get(&self, key: u32) -> Option<&T> {
        self.entries.get(key as usize)?.as_ref()
    }

    /// The value of this key, if there is one.
    #[inline]
    pub fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.entries.get_mut(key as usize)?.as_mut()
    }

    /// How many values there is room for.
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Gives back memory behind the last value. The keys of the values stay, and those before the last one are used first
    /// from now on, so that the next time more can be given back.
    pub fn shrink(&mut self) {
        let used = self.entries.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        if used < self.entries.len() {
            self.entries.truncate(used);
            self.free.retain(|key| (*key as usize) < used);
        }
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        if used <= self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * used);
            self.free.shrink_to(2 * used);
        }
    }

    /// All values with their keys, in rising order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().zip(0..).filter_map(|(entry, key)| Some((key, entry.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_and_are_used_again() {
        let mut slab = Slab::default();
        let keys = ['a', 'b', 'c'].map(|value| slab.insert(value));
        assert_eq!(keys, [0, 1, 2]);
        assert_eq!((slab.remove(1), slab.remove(1), slab.remove(9)), (Some('b'), None, None));
        assert_eq!((slab.len(), slab.get(1), slab.get(2)), (2, None, Some(&'c')));
        assert_eq!(slab.vacant_key(), 1);
        assert_eq!((slab.insert('d'), slab.insert('e')), (1, 3));
        assert_eq!(
            slab.iter().map(|(key, value)| (key, *value)).collect::<Vec<_>>(),
            [(0, 'a'), (1, 'd'), (2, 'c'), (3, 'e')]
        );
    }

    #[test]
    fn memory_behind_the_last_value_is_given_back_and_keys_stay() {
        let mut slab = Slab::default();
        (0..1000).for_each(|value| assert_eq!(slab.insert(value), value));
        (0..1000).filter(|key| ![3, 7].contains(key)).for_each(|key| assert_eq!(slab.remove(key), Some(key)));
        slab.shrink();
        assert!(slab.capacity() < 100, "{}", slab.capacity());
        assert_eq!(
            (slab.len(), slab.keys(), slab.get(3), slab.get(7), slab.get(999)),
            (2, 8, Some(&3), Some(&7), None)
        );
        let keys: Vec<u32> = (0..8).map(|value| slab.insert(value)).collect();
        assert_eq!(keys, [0, 1, 2, 4, 5, 6, 8, 9]);
    }
}
