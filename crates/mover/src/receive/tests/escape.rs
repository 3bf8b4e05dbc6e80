//! Ways out of the target folder: links that lead out together, links and other things that another user puts where the
//! receiver is about to write, bits that would lend rights.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::name::{Name, link_stays_inside};
use crate::target::Target;

const SMALL: &[u8] = b"abc";

fn link(file: u64, name: &str, text: &str) -> Message {
    let kind = Kind::Link(text.as_bytes().to_vec());
    Message::Entry(Entry {
        kind,
        ..entry(file, name, None)
    })
}

/// A whole file in one message on the data connection.
fn small(session: &Session, entry: Entry) {
    let mut hasher = BlockHasher::new(Algorithm::Xxh3, WHOLE);
    hasher.update(SMALL);
    let bytes = [SMALL, &hasher.finish()].concat();
    give(session, &Message::Small(entry, 3, None), &bytes);
}

fn finish(session: &Session) {
    give(session, &Message::Finish, b"");
    say(session, &Message::Finish);
}

/// Each name in a folder and below it that leads out.
fn ways_out(folder: &Path, root: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // What leads nowhere, or to itself, leads not outside.
        if fs::canonicalize(&path).is_ok_and(|real| !real.starts_with(root)) {
            found.push(path.clone());
        }
        if path.symlink_metadata().unwrap().is_dir() {
            ways_out(&path, root, found);
        }
    }
}

#[test]
fn two_links_do_not_lead_out_together() {
    let place = Testbed::new("two-links");
    let outcome = place.tell(|session| {
        say(session, &link(1, "d/M", ".."));
        say(session, &link(2, "out", "d/M/../../beside"));
        say(session, &link(3, "d/e/up", "../../../beside"));
        say(session, &link(4, "d/e/in", "../../target-file"));
        finish(session);
    });
    let outcome = outcome.unwrap();
    let refused: Vec<_> = outcome
        .failed
        .iter()
        .map(|(path, _)| path.file_name().unwrap().to_owned())
        .collect();
    assert_eq!(refused, ["out", "up"]);
    let root = fs::canonicalize(place.folder.join("target")).unwrap();
    assert_eq!(fs::read_link(root.join("d/M")).unwrap(), Path::new(".."));
    let mut found = Vec::new();
    ways_out(&root, &root, &mut found);
    assert_eq!(found, [""; 0].map(PathBuf::from));
}

#[test]
fn nothing_is_stored_through_a_link_that_takes_a_folders_place() {
    let place = Testbed::new("swapped");
    let target = place.folder.join("target");
    let outside = place.folder.join("outside");
    fs::create_dir(&outside).unwrap();
    let outcome = place.tell(|session| {
        let begun = entry(1, "d/begun", Some(3));
        say(session, &Message::Entry(begun));
        let mut intake = Intake::exactly(&session.control);
        while intake.message().unwrap() != Message::Ready(1) {}
        // Another user moves the folder away and puts a link in its place.
        fs::rename(target.join("d"), target.join("moved")).unwrap();
        symlink(&outside, target.join("d")).unwrap();
        let mut hasher = BlockHasher::new(Algorithm::Xxh3, WHOLE);
        hasher.update(SMALL);
        let digest = hasher.finish();
        let whole = Block {
            is_only: true,
            ..block(0, 3)
        };
        give(session, &Message::Block(whole), &[SMALL, &digest].concat());
        let of_whole = checksum::whole(Algorithm::Xxh3, &[digest]);
        say(session, &Message::End(1, 3, of_whole));
        say(session, &Message::Entry(entry(2, "d/late", Some(3))));
        small(session, entry(3, "d/small", Some(3)));
        let folder = Entry {
            kind: Kind::Folder,
            ..entry(4, "d", None)
        };
        say(session, &Message::Entry(folder));
        finish(session);
    });
    let outcome = outcome.unwrap();
    assert_eq!(outcome.failed.len(), 3, "{:?}", outcome.failed);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // What had begun stays in the folder that it began in.
    assert_eq!(fs::read(target.join("moved/begun")).unwrap(), SMALL);
}

#[test]
fn what_another_user_has_put_at_a_hidden_name_is_not_written_to() {
    for hidden in [".f.shunt-part", ".f.shunt-journal"] {
        let place = Testbed::new("planted");
        let (target, beside) = (place.folder.join("target"), place.folder.join("beside"));
        fs::hard_link(&beside, target.join(hidden)).unwrap();
        let outcome = place.tell(|session| {
            say(session, &Message::Entry(entry(1, "f", Some(5 << 20))));
            finish(session);
        });
        let failed = outcome.unwrap().failed;
        assert!(failed[0].1.contains(hidden), "{failed:?}");
        place.check_untouched();
    }
}

#[test]
fn a_file_takes_the_place_of_a_link_and_does_not_follow_it_and_lends_no_rights() {
    let place = Testbed::new("replaced");
    let target = place.folder.join("target");
    symlink("../beside", target.join("f")).unwrap();
    let outcome = place.tell(|session| {
        let all_bits = Entry {
            mode: 0o7777,
            ..entry(1, "f", Some(3))
        };
        small(session, all_bits);
        finish(session);
    });
    assert_eq!(outcome.unwrap().failed.len(), 0);
    let stored = fs::symlink_metadata(target.join("f")).unwrap();
    assert!(stored.is_file());
    assert_eq!(stored.permissions().mode() & 0o7777, 0o777);
    assert_eq!(fs::read(place.folder.join("beside")).unwrap(), b"untouched");
}

/// A name or text of few words, so that links meet each other.
fn words(first: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(first), 1..6)
        .prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// The kernel resolves every name: the judge is another than the one who allowed the links.
    #[test]
    fn no_number_of_links_leads_out(links in proptest::collection::vec(
        (words(&["a", "b"]), words(&["a", "b", "..", "."])), 1..12)) {
        let place = Testbed::new("many-links");
        let root = fs::canonicalize(place.folder.join("target")).unwrap();
        let target = Target::open(&root, Check::Last).unwrap();
        for (name, text) in links {
            let name = Name::parse(name.into_bytes()).unwrap();
            if link_stays_inside(&name, text.as_bytes()) {
                // Where a link stands in the way of a folder it cannot be.
                let _ = target.make_link(&name, text.as_bytes());
            }
        }
        let mut found = Vec::new();
        ways_out(&root, &root, &mut found);
        prop_assert_eq!(found, Vec::<PathBuf>::new());
    }
}
