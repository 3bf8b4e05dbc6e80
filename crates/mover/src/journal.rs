//! What a cut transfer leaves for the next: which blocks of a part file are on the disk, and their hashes.
//!
//! A header that says of which file, then records of a fixed size, each with a checksum. A record is written only
//! after its block was synced. What a crash has torn at the end is not counted, and cut off by the next write.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::checksum::{Algorithm, Digest};

const MAGIC: &[u8; 16] = b"shunt-journal 1\n";
const HEADER_MAX_BYTES: usize = 8 * 1024;
const RECORD_BYTES: usize = 8 + 32 + 8;

/// Of which file a journal is. Another source, or the same after a change, is another identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// As it was sent.
    pub name: Vec<u8>,
    /// Bytes of the whole.
    pub size: u64,
    /// Time of the source's last change.
    pub modified: (i64, u32),
    /// How blocks are hashed.
    pub algorithm: Algorithm,
    pub block_bytes: u32,
}

#[derive(Debug)]
pub struct Journal {
    file: File,
    header_bytes: u64,
}

impl Journal {
    /// Reads what is there; blocks are given in the order in which they were written. Where it is of another file or
    /// makes no sense, it begins anew and has no blocks.
    pub fn open(mut file: File, identity: &Identity) -> io::Result<(Self, Vec<(u64, Digest)>)> {
        let mut header = MAGIC.to_vec();
        let body = postcard::to_stdvec(identity).map_err(io::Error::other)?;
        header.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        header.extend(&body);
        debug_assert!(header.len() <= HEADER_MAX_BYTES);
        let header_bytes = header.len() as u64;
        let mut found = vec![0; header.len()];
        let is_same = file.read_exact(&mut found).is_ok() && found == header;
        if !is_same {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header)?;
            return Ok((Self { file, header_bytes }, Vec::new()));
        }
        let blocks = read_records(&mut file)?;
        let end = header.len() + blocks.len() * RECORD_BYTES;
        file.set_len(end as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok((Self { file, header_bytes }, blocks))
    }

    /// Takes room on the disk for so many blocks, so that a disk that somebody else fills does not end a transfer whose
    /// own room was taken; a wish.
    pub fn make_space(&self, blocks: u64) {
        let bytes = self.header_bytes + blocks.saturating_mul(RECORD_BYTES as u64);
        let _ = rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes);
    }

    /// Forgets all but these blocks.
    pub fn restart(&mut self, blocks: &[(u64, Digest)]) -> io::Result<()> {
        self.file.set_len(self.header_bytes)?;
        self.file.seek(SeekFrom::End(0))?;
        self.add(blocks)
    }

    /// Adds blocks that are on the disk, and waits until the journal is there too.
    pub fn add(&mut self, blocks: &[(u64, Digest)]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(blocks.len() * RECORD_BYTES);
        for (index, digest) in blocks {
            let mut record = [0; RECORD_BYTES];
            record[..8].copy_from_slice(&index.to_le_bytes());
            record[8..40].copy_from_slice(digest);
            let check = XxHash3_64::oneshot(&record[..40]);
            record[40..].copy_from_slice(&check.to_le_bytes());
            bytes.extend(record);
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()
    }
}

fn read_records(file: &mut File) -> io::Result<Vec<(u64, Digest)>> {
    let mut blocks = Vec::new();
    // No more records than blocks of the largest file.
    let most = crate::protocol::BLOCKS_MAX * RECORD_BYTES as u64;
    let mut reader = io::BufReader::new(file.take(most));
    let mut record = [0; RECORD_BYTES];
    while reader.read_exact(&mut record).is_ok() {
        let (fields, check) = record.split_at(40);
        if XxHash3_64::oneshot(fields).to_le_bytes() != check {
            break;
        }
        let (index, digest) = fields.split_at(8);
        let index = u64::from_le_bytes(index.try_into().expect("invariant: eight bytes"));
        blocks.push((index, digest.try_into().expect("invariant: 32 bytes")));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(size: u64) -> Identity {
        Identity {
            name: b"a/b".to_vec(),
            size,
            modified: (1, 2),
            algorithm: Algorithm::Blake3,
            block_bytes: 1 << 20,
        }
    }

    fn file() -> File {
        let memory = rustix::fs::memfd_create(c"journal", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        File::from(memory)
    }

    fn reopened(file: &File) -> File {
        let mut file = file.try_clone().unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file
    }

    #[test]
    fn what_was_added_is_there_after_a_crash_but_for_what_it_tore() {
        let file = file();
        let (mut journal, blocks) = Journal::open(reopened(&file), &identity(9)).unwrap();
        assert!(blocks.is_empty());
        journal.add(&[(3, [3; 32]), (1, [1; 32])]).unwrap();
        journal.add(&[(2, [2; 32])]).unwrap();
        let whole = file.metadata().unwrap().len();
        for torn in 0..RECORD_BYTES as u64 {
            let expected = [(3, [3; 32]), (1, [1; 32]), (2, [2; 32])];
            file.set_len(whole - torn).unwrap();
            let (mut journal, blocks) = Journal::open(reopened(&file), &identity(9)).unwrap();
            let count = if torn == 0 { 3 } else { 2 };
            assert_eq!(blocks, expected[..count]);
            if torn > 0 {
                journal.add(&[(2, [2; 32])]).unwrap();
            }
        }
    }

    #[test]
    fn a_damaged_record_and_what_follows_do_not_count() {
        let file = file();
        let (mut journal, _) = Journal::open(reopened(&file), &identity(9)).unwrap();
        journal
            .add(&[(0, [0; 32]), (1, [1; 32]), (2, [2; 32])])
            .unwrap();
        let mut damaged = reopened(&file);
        let at = file.metadata().unwrap().len() - 2 * RECORD_BYTES as u64 + 9;
        damaged.seek(SeekFrom::Start(at)).unwrap();
        damaged.write_all(&[0xff]).unwrap();
        let (_, blocks) = Journal::open(reopened(&file), &identity(9)).unwrap();
        assert_eq!(blocks, [(0, [0; 32])]);
    }

    #[test]
    fn of_another_file_nothing_is_believed() {
        let file = file();
        let (mut journal, _) = Journal::open(reopened(&file), &identity(9)).unwrap();
        journal.add(&[(0, [0; 32])]).unwrap();
        let (_, blocks) = Journal::open(reopened(&file), &identity(10)).unwrap();
        assert!(blocks.is_empty());
        let (_, blocks) = Journal::open(reopened(&file), &identity(10)).unwrap();
        assert!(blocks.is_empty());
    }
}
