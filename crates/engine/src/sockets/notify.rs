//! Sockets whose header has changed since the last flush: each holder hears of it once, in the order in which the
//! sockets changed first, as epoll(7) of Linux reports them.

use std::collections::VecDeque;

/// Rows in the order in which they were marked, each once: no longer than the table of rows.
#[derive(Debug, Default)]
pub struct Dirty {
    rows: VecDeque<u32>,
    marked: Vec<bool>,
    /// Since it was last dealt with, something has happened besides bytes that arrived or were acknowledged.
    is_rare: bool,
}

impl Dirty {
    /// A list over `rows` rows.
    pub fn new(rows: usize) -> Self {
        Self {
            rows: VecDeque::new(),
            marked: vec![false; rows],
            is_rare: false,
        }
    }

    /// Adds a row.
    pub fn mark(&mut self, row: u32) {
        let Some(marked) = usize::try_from(row)
            .ok()
            .and_then(|row| self.marked.get_mut(row))
        else {
            return;
        };
        if !core::mem::replace(marked, true) {
            self.rows.push_back(row);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Something has happened besides bytes that arrived or were acknowledged.
    pub fn note_rare(&mut self) {
        self.is_rare = true;
    }

    /// A whole poll deals with it.
    #[inline]
    pub fn forget_rare(&mut self) {
        self.is_rare = false;
    }

    /// Whether there is none but perhaps this one, and it of bytes alone.
    #[inline]
    pub fn is_at_most(&self, row: u32) -> bool {
        !self.is_rare && self.rows.len() <= 1 && self.rows.front().is_none_or(|first| *first == row)
    }

    /// Takes the row that was marked first.
    pub fn pop(&mut self) -> Option<u32> {
        let row = self.rows.pop_front()?;
        if let Some(marked) = usize::try_from(row)
            .ok()
            .and_then(|row| self.marked.get_mut(row))
        {
            *marked = false;
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_once_and_in_the_order_in_which_they_were_marked() {
        let mut dirty = Dirty::new(4);
        for row in [2, 2, 1, 2, 9] {
            dirty.mark(row);
        }
        assert_eq!(
            (dirty.pop(), dirty.pop(), dirty.pop()),
            (Some(2), Some(1), None)
        );
        dirty.mark(2);
        assert_eq!(dirty.pop(), Some(2));
    }
}
