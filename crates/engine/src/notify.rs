//! Sockets whose header has changed since the last flush: each holder hears of it once.

/// A list of rows without duplicates.
#[derive(Debug, Default)]
pub struct Dirty {
    rows: Vec<u32>,
    marked: Vec<bool>,
}

impl Dirty {
    /// A list over `rows` rows.
    pub fn new(rows: usize) -> Self {
        Self {
            rows: Vec::new(),
            marked: vec![false; rows],
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
            self.rows.push(row);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes a row.
    pub fn pop(&mut self) -> Option<u32> {
        let row = self.rows.pop()?;
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
    fn a_row_is_listed_once_until_it_is_taken() {
        let mut dirty = Dirty::new(4);
        for row in [2, 2, 1, 2, 9] {
            dirty.mark(row);
        }
        assert_eq!(
            (dirty.pop(), dirty.pop(), dirty.pop()),
            (Some(1), Some(2), None)
        );
        dirty.mark(2);
        assert_eq!(dirty.pop(), Some(2));
    }
}
