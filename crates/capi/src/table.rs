//! Handles: numbers that C holds, and the objects behind them.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use client::Errno;

use crate::object::Object;

/// Objects that may be open at once.
const SLOTS_MAX: usize = 1 << 20;
const INDEX_BITS: u32 = 32;
/// A slot that was used so often is not used again.
const LAST_GENERATION: u32 = 0x7fff_ffff;

struct HandleSlot {
    /// At least 1, so that no handle is 0; below 2^31, so that none is negative.
    generation: u32,
    object: Option<Arc<Object>>,
}

#[derive(Default)]
struct Table {
    slots: Vec<HandleSlot>,
    free: Vec<usize>,
}

static TABLE: RwLock<Table> = RwLock::new(Table {
    slots: Vec::new(),
    free: Vec::new(),
});

fn read() -> RwLockReadGuard<'static, Table> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Table> {
    TABLE.write().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn insert(&mut self, object: Arc<Object>) -> Result<i64, Errno> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(HandleSlot {
                    generation: 1,
                    object: None,
                });
                self.slots.len() - 1
            }
            None => return Err(Errno::MFILE),
        };
        let slot = &mut self.slots[index];
        slot.object = Some(object);
        let index = i64::try_from(index).map_err(|_| Errno::MFILE)?;
        Ok(i64::from(slot.generation) << INDEX_BITS | index)
    }

    fn place(&self, handle: i64) -> Result<usize, Errno> {
        let (generation, index) = parts(handle).ok_or(Errno::BADF)?;
        let slot = self.slots.get(index).ok_or(Errno::BADF)?;
        if slot.generation == generation && slot.object.is_some() {
            Ok(index)
        } else {
            Err(Errno::BADF)
        }
    }

    fn remove(&mut self, handle: i64) -> Result<Arc<Object>, Errno> {
        let index = self.place(handle)?;
        let slot = &mut self.slots[index];
        if slot.generation < LAST_GENERATION {
            slot.generation += 1;
            self.free.push(index);
        }
        slot.object.take().ok_or(Errno::BADF)
    }
}

fn parts(handle: i64) -> Option<(u32, usize)> {
    let generation = u32::try_from(handle >> INDEX_BITS).ok()?;
    let index = usize::try_from(handle & ((1 << INDEX_BITS) - 1)).ok()?;
    Some((generation, index))
}

/// Gives an object its handle. EMFILE: there are too many.
pub fn insert(object: Object) -> Result<i64, Errno> {
    static FORKS: Once = Once::new();
    FORKS.call_once(|| client::at_fork(before_fork, after_fork, after_fork));
    write().insert(Arc::new(object))
}

/// What a handle stands for. EBADF: nothing.
pub fn find(handle: i64) -> Result<Arc<Object>, Errno> {
    let table = read();
    let index = table.place(handle)?;
    table.slots[index].object.clone().ok_or(Errno::BADF)
}

/// Takes an object from its handle; calls under way on it end first. EBADF: there is none.
pub fn remove(handle: i64) -> Result<Arc<Object>, Errno> {
    write().remove(handle)
}

type TableGuard = ManuallyDrop<Option<RwLockWriteGuard<'static, Table>>>;

thread_local! {
    // Without a destructor: a thread may end after the library is torn down.
    static HELD: RefCell<TableGuard> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// The lock is held across a fork, so that the child does not find it locked by a thread that it does not have.
extern "C" fn before_fork() {
    let held = write();
    HELD.with(|place| place.borrow_mut().replace(held));
}

extern "C" fn after_fork() {
    HELD.with(|place| place.borrow_mut().take());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Arc<Object> {
        Arc::new(Object::Nothing)
    }

    #[test]
    fn a_handle_is_good_until_it_is_closed_and_never_again() {
        let mut table = Table::default();
        let first = table.insert(object()).unwrap();
        let second = table.insert(object()).unwrap();
        assert!(first > 0 && second > 0 && first != second);
        assert!(table.place(first).is_ok());
        assert!(table.remove(first).is_ok());
        assert_eq!(table.remove(first).map(drop), Err(Errno::BADF));
        let third = table.insert(object()).unwrap();
        assert_ne!(third, first, "the slot is used again under another name");
        assert_eq!(table.place(first), Err(Errno::BADF));
        assert!(table.place(second).is_ok() && table.place(third).is_ok());
    }

    #[test]
    fn numbers_that_were_never_handles_stand_for_nothing() {
        let mut table = Table::default();
        table.insert(object()).unwrap();
        for number in [
            0,
            1,
            -1,
            i64::MIN,
            i64::MAX,
            5 << INDEX_BITS,
            2 << INDEX_BITS,
        ] {
            assert_eq!(table.place(number), Err(Errno::BADF), "{number}");
        }
    }

    #[test]
    fn a_slot_that_was_used_too_often_rests() {
        let mut table = Table::default();
        let handle = table.insert(object()).unwrap();
        table.slots[0].generation = LAST_GENERATION;
        assert_eq!(table.remove(handle).map(drop), Err(Errno::BADF));
        let last = i64::from(LAST_GENERATION) << INDEX_BITS;
        assert!(table.remove(last).is_ok());
        let next = table.insert(object()).unwrap();
        assert_eq!(next & 0xffff_ffff, 1, "another slot");
    }
}
