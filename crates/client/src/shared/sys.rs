//! The word and the value behind it.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;

/// A place for a value that is replaced while it is read. See the file above.
pub struct Shared<T> {
    /// Address of a [`Node`] or 0 in the lower 48 bits, above them how many have taken it from here and not brought it back.
    word: AtomicU64,
    owns: PhantomData<Arc<T>>,
}

/// A value, and who has it.
struct Node<T> {
    value: Arc<T>,
    /// [`IN_PLACE`] while a word names it, and then: readers that the word had counted, minus those that have let go
    /// since, plus those that the word could not count.
    readers: AtomicI64,
}

/// More than any number of readers.
const IN_PLACE: i64 = 1 << 40;
/// Addresses of user space are lower on all processors of 64 bits, unless a program asks for others.
const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
const ONE: u64 = 1 << ADDRESS_BITS;
/// Above so many in the word a reader counts itself in the node: there are never more threads between the two than fit above.
const MANY: u64 = 1 << 15;

fn address<T>(node: *const Node<T>) -> u64 {
    let address = node.expose_provenance() as u64;
    assert_eq!(address & !ADDRESS, 0, "an address of user space");
    address
}

/// Whether the word names the node.
#[inline]
fn names<T>(word: u64, node: *const Node<T>) -> bool {
    word & ADDRESS == node.addr() as u64
}

fn node<T>(word: u64) -> *mut Node<T> {
    ptr::with_exposed_provenance_mut(usize::try_from(word & ADDRESS).unwrap_or(0))
}

fn made<T>(value: Option<Arc<T>>) -> u64 {
    value.map_or(0, |value| {
        let readers = AtomicI64::new(IN_PLACE);
        address(Box::into_raw(Box::new(Node { value, readers })))
    })
}

/// Adds to the readers of a node that no word names, or of whose readers this is one; frees it with the last.
///
/// # Safety
/// The node lives, and the caller is one of those who are counted.
unsafe fn add<T>(node: *mut Node<T>, readers: i64) {
    // SAFETY: it lives as long as somebody is counted.
    let before = unsafe { (*node).readers.fetch_add(readers, Ordering::AcqRel) };
    if before + readers == 0 {
        // SAFETY: made by `Box::into_raw`, and nobody has it any more: no word names it and all readers have let go.
        drop(unsafe { Box::from_raw(node) });
    }
}

/// A value that was read; it stays valid when another is put in its place meanwhile.
pub struct Loaded<'a, T> {
    place: &'a Shared<T>,
    /// What the word was once this reader was counted in it; 0: nothing was there.
    word: u64,
}

impl<T> Shared<T> {
    /// Nothing.
    pub const fn empty() -> Shared<T> {
        Shared {
            word: AtomicU64::new(0),
            owns: PhantomData,
        }
    }

    /// What is there now.
    pub fn load(&self) -> Loaded<'_, T> {
        let empty = Loaded {
            place: self,
            word: 0,
        };
        if self.word.load(Ordering::Acquire) & ADDRESS == 0 {
            return empty;
        }
        let before = self.word.fetch_add(ONE, Ordering::AcqRel);
        if before & ADDRESS == 0 {
            // Taken away in between. The count of nothing is nothing.
            return empty;
        }
        let word = before.wrapping_add(ONE);
        if before >> ADDRESS_BITS >= MANY {
            // SAFETY: this reader is counted in the word, so the node lives; first in the node, then no more in the word.
            unsafe { (*node::<T>(word)).readers.fetch_add(1, Ordering::AcqRel) };
            self.bring_back(word);
        }
        Loaded { place: self, word }
    }

    /// A reader lets go, when whose `word` was this. While the word names its node it names no other of that address: the node lives as
    /// long as this reader has it.
    #[inline(always)]
    fn bring_back(&self, word: u64) {
        let (set, get) = (Ordering::Release, Ordering::Relaxed);
        let less = word.wrapping_sub(ONE);
        // Nearly always nobody else was here meanwhile.
        if self.word.compare_exchange(word, less, set, get).is_err() {
            self.bring_back_again(node(word));
        }
    }

    /// As `bring_back`, where the word changes meanwhile.
    #[inline(never)]
    fn bring_back_again(&self, node: *mut Node<T>) {
        let mut word = self.word.load(Ordering::Relaxed);
        while names(word, node) && word >= ONE {
            let (set, get) = (Ordering::Release, Ordering::Relaxed);
            match self.word.compare_exchange_weak(word, word - ONE, set, get) {
                Ok(_) => return,
                Err(changed) => word = changed,
            }
        }
        // SAFETY: the caller is a reader, and counted in the node: the word names another by now, or had too many.
        unsafe { add(node, -1) };
    }

    /// Puts another value there, or none, and returns what was there.
    pub fn swap(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        let before = self.word.swap(made(value), Ordering::AcqRel);
        let node = node::<T>(before);
        if node.is_null() {
            return None;
        }
        // SAFETY: its readers were counted in the word, and IN_PLACE keeps it alive until they are handed over.
        let value = unsafe { Arc::clone(&(*node).value) };
        // SAFETY: the word names it no more, for which IN_PLACE stood.
        unsafe { hand_over(node, before) };
        Some(value)
    }

    /// Puts another value, or none, where `seen` was; false: something else is there by now.
    pub fn replace(&self, seen: &Loaded<'_, T>, value: Option<Arc<T>>) -> bool {
        let next = made(value);
        let expected = seen.word & ADDRESS;
        let mut word = self.word.load(Ordering::Relaxed);
        while word & ADDRESS == expected {
            let (set, get) = (Ordering::AcqRel, Ordering::Relaxed);
            match self.word.compare_exchange_weak(word, next, set, get) {
                Ok(_) => {
                    if expected != 0 {
                        // SAFETY: as in `swap`.
                        unsafe { hand_over(node::<T>(expected), word) };
                    }
                    return true;
                }
                Err(changed) => word = changed,
            }
        }
        if next != 0 {
            // SAFETY: made above, and nobody has seen it.
            drop(unsafe { Box::from_raw(node::<T>(next)) });
        }
        false
    }
}

/// The readers that a word had counted are counted in the node from now on.
///
/// # Safety
/// The word named the node and does not any more; called once.
unsafe fn hand_over<T>(node: *mut Node<T>, word: u64) {
    let readers = i64::try_from(word >> ADDRESS_BITS).unwrap_or(0);
    // SAFETY: IN_PLACE has kept it alive.
    unsafe { add(node, readers - IN_PLACE) };
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        drop(self.swap(None));
    }
}

impl<T> Loaded<'_, T> {
    /// The value, if there is one.
    pub fn as_ref(&self) -> Option<&Arc<T>> {
        // SAFETY: null, or a node that lives as long as this reader is counted.
        unsafe { node::<T>(self.word).as_ref() }.map(|node| &node.value)
    }

    /// The value itself.
    pub fn as_deref(&self) -> Option<&T> {
        self.as_ref().map(|value| &**value)
    }

    /// The value with a reference of its own.
    pub fn cloned(&self) -> Option<Arc<T>> {
        self.as_ref().map(Arc::clone)
    }

    /// The value, once, or nothing.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.as_ref().into_iter()
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.word != 0
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.word == 0
    }
}

impl<T> Drop for Loaded<'_, T> {
    fn drop(&mut self) {
        if self.is_some() {
            self.place.bring_back(self.word);
        }
    }
}

// SAFETY: what is in the place is an Arc, which may go to other threads and be used by several where this holds, and the word
// and the count are atomics.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
