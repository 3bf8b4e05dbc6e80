//! Holds what STYLE asks of every Rust file and a compiler does not check, and what docs/rfc.md says of files and tests.

use std::collections::HashSet;

use testkit::workspace;

/// A file past this is a redesign waiting.
const MAX_LINES: usize = 800;

/// Files that may contain `unsafe`: they map memory, call the system, or are called by C.
fn may_be_unsafe(path: &str) -> bool {
    const FILES: &[&str] = &[
        "crates/hostif/src/region.rs",
        "crates/hostif/src/copy.rs",
        "crates/hostif/src/cursor.rs",
        "crates/nic/src/shared_slice.rs",
        "crates/shim/src/abi/exports.rs",
    ];
    FILES.contains(&path) || path.ends_with("/sys.rs") || path.ends_with("/ffi.rs")
}

/// Words that postpone work; written in halves so that this file passes its own test.
const FORBIDDEN: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("HA", "CK"),
];

/// Names that nobody could look up, and those that stand for the same now; in halves as above.
const RETIRED: &[(&str, &str)] = &[
    (concat!("Cr", "ank"), "InlineEngine"),
    (concat!("Pa", "rties"), "WaitSet"),
    (concat!("Ea", "r"), "Notifier"),
    (concat!("Nu", "dge"), "NotifySender"),
    (concat!("He", "ritage"), "InheritedChannels"),
    (concat!("Au", "dience"), "Notifications"),
    (concat!("Wi", "shes"), "SendAncillary"),
    (concat!("Tw", "ins"), "PerCore"),
    (concat!("La", "ne"), "ByteChannel"),
    (concat!("La", "nes"), "ByteChannels"),
    (concat!("Pa", "ssage"), "ChannelPair"),
    (concat!("St", "rays"), "Orphans"),
    (concat!("Fl", "ock"), "OrphanBatch"),
    (concat!("Se", "at"), "Shard"),
    (concat!("St", "ranger"), "PendingPeer"),
    (concat!("Lo", "an"), "UserBuffer"),
    (concat!("Le", "nder"), "DirectReceive"),
    (concat!("Ca", "me"), "FrameContext"),
    (concat!("Ta", "lly"), "Counters"),
    (concat!("Fl", "ightRooms"), "FlightPool"),
    (concat!("No", "Rooms"), "NoPool"),
    (concat!("Ra", "ngeRoom"), "RangeBlock"),
    (concat!("Fl", "ightRoom"), "FlightBlock"),
    (concat!("Cu", "rbed"), "OffloadOverride"),
    (concat!("Vo", "lley"), "ProbeTraffic"),
    (concat!("Be", "d"), "Testbed"),
    (concat!("pr", "ompt_small"), "notify_small"),
    (concat!("ca", "tch_up"), "flush_small"),
    (concat!("Pa", "rty"), "Station"),
    (
        concat!("Pl", "ace"),
        "EngineIndex, BlockPosition … what it is the place of",
    ),
    (concat!("Le", "nt"), "BorrowedPiece"),
    (concat!("he", "ard_beside"), "duplicate_filter"),
    (concat!("tu", "rn_into"), "poll_into"),
    (concat!("tu", "rn_datagrams"), "poll_datagrams"),
    (concat!("se", "ttle_copy"), "relocate_copy"),
    (concat!("cl", "ose_settled"), "close_relocated"),
    (concat!("se", "ttle_written"), "drain_notes"),
    (concat!("pu", "blish_room"), "publish_capacity"),
    (concat!("ha", "s_room"), "has_capacity"),
    (concat!("aw", "ait_room"), "await_capacity"),
    (concat!("ma", "ke_room"), "make_space"),
    (concat!("wa", "it_lending"), "wait_with_buffer"),
    (concat!("ta", "ke_apart"), "detach_device"),
    (concat!("on", "_turn"), "on_poll"),
];

/// Paths of the files for which `wrong` names a fault, with the fault.
fn faults(wrong: impl Fn(&str, &str) -> Option<String>) -> String {
    let files = workspace::rust_files();
    assert!(files.len() > 10, "the workspace's files were not found");
    let lines = files
        .iter()
        .filter_map(|(path, text)| Some(format!("\n  {path}: {}", wrong(path, text)?)));
    lines.collect()
}

/// Line numbers, from 1, on which the code outside comments has this word.
fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    let boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    let has_word = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        code.match_indices(word).any(|(at, _)| {
            boundary(code[..at].chars().next_back())
                && boundary(code[at + word.len()..].chars().next())
        })
    };
    text.lines()
        .enumerate()
        .filter(|(_, line)| has_word(line))
        .map(|(index, _)| index + 1)
        .collect()
}

#[test]
fn every_file_opens_by_saying_what_it_is() {
    let faults =
        faults(|_, text| (!text.starts_with("//! ")).then(|| "does not open with //!".to_owned()));
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn no_source_file_is_longer_than_the_limit() {
    let faults = faults(|path, text| {
        let lines = text.lines().count();
        (path.contains("/src/") && lines > MAX_LINES)
            .then(|| format!("{lines} lines; the limit is {MAX_LINES}"))
    });
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn unsafe_stands_only_in_the_listed_files() {
    // Built from halves for the same reason as above.
    let word = concat!("un", "safe");
    let faults = faults(|path, text| {
        let lines = lines_with_word(text, word);
        (!may_be_unsafe(path) && !lines.is_empty()).then(|| format!("{word} on line {lines:?}"))
    });
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn no_file_postpones_work() {
    let faults = faults(|_, text| {
        let found: Vec<&&str> = FORBIDDEN
            .iter()
            .filter(|word| text.contains(**word))
            .collect();
        (!found.is_empty()).then(|| format!("{found:?}"))
    });
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn names_that_were_given_up_do_not_come_back() {
    let faults = faults(|_, text| {
        let mut found = RETIRED
            .iter()
            .filter(|(name, _)| !lines_with_word(text, name).is_empty());
        found
            .next()
            .map(|(name, instead)| format!("{name} is {instead} now"))
    });
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn words_are_found_in_code_and_not_in_comments_or_longer_words() {
    let text = "let a = alpha;\n// alpha\nalphabet\n(alpha)\nx_alpha // y\n";
    assert_eq!(lines_with_word(text, "alpha"), [1, 4]);
}

/// `a{b,c}d` is `abd` and `acd`.
fn expand(pattern: &str) -> Vec<String> {
    let parts = pattern.rfind('{').and_then(|open| {
        let close = open + pattern[open..].find('}')?;
        Some((
            &pattern[..open],
            &pattern[open + 1..close],
            &pattern[close + 1..],
        ))
    });
    let Some((before, between, behind)) = parts else {
        return vec![pattern.trim().to_owned()];
    };
    let one = |part: &str| expand(&format!("{before}{}{behind}", part.trim()));
    between.split(',').flat_map(one).collect()
}

#[test]
fn files_and_tests_that_the_page_on_rfcs_names_are_there() {
    let files = workspace::rust_files();
    let functions: HashSet<&str> = files
        .iter()
        .flat_map(|(_, text)| text.split("fn ").skip(1))
        .filter_map(|behind| {
            behind
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        })
        .collect();
    let is_file = |name: &str| {
        let end = format!("/{name}");
        files.iter().any(|(path, _)| path.ends_with(&end))
    };
    let page = std::fs::read_to_string(workspace::root().join("docs/rfc.md")).unwrap();
    let named: Vec<String> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .flat_map(expand)
        .collect();
    let is_missing = |name: &&String| match name.rsplit_once("::") {
        Some((_, test)) => test.contains('_') && !functions.contains(test),
        None => name.ends_with(".rs") && !is_file(name),
    };
    let missing: Vec<&String> = named.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(named.len() > 500, "the page was not understood");
}

/// Paths in code marks that a page for developers names, below the top or below `crates/`.
#[test]
fn files_that_the_pages_for_developers_name_are_there() {
    let root = workspace::root();
    let mut missing = Vec::new();
    let mut named = 0;
    for page in ["CONTRIBUTING.md", "README.md", "ARCHITECTURE.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for path in text.split('`').skip(1).step_by(2).flat_map(expand) {
            let is_path = path.contains('/') && !path.contains([' ', '*', '(', ':', '$']);
            // What a build makes, what an engine of the system has, and addresses.
            let is_elsewhere = path.starts_with("target") || path.starts_with(['/', '@', '1']);
            if !is_path || is_elsewhere {
                continue;
            }
            named += 1;
            if ![root.clone(), root.join("crates")]
                .iter()
                .any(|top| top.join(&path).exists())
            {
                missing.push(format!("{page}: {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named > 100, "the pages were not understood: {named}");
}

/// Whether a file, below the top or below `crates/`, has an item of that name; macros name functions as `fn` too.
fn has_item(path: &str, name: &str) -> bool {
    let root = workspace::root();
    let text = [root.join(path), root.join("crates").join(path)]
        .iter()
        .find_map(|file| std::fs::read_to_string(file).ok())
        .unwrap_or_default();
    ["fn", "struct", "enum", "trait", "const", "static"]
        .iter()
        .any(|kind| !lines_with_word(&text, &format!("{kind} {name}")).is_empty())
}

/// The table of what to change where names items as `file.rs::item`; a line of a walk is a function, then its file.
#[test]
fn what_the_page_on_the_architecture_names_in_files_is_there() {
    let page = std::fs::read_to_string(workspace::root().join("ARCHITECTURE.md")).unwrap();
    let in_table = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|path| path.split_once(".rs::"))
        .map(|(path, name)| (format!("{path}.rs"), name));
    let in_walks = page.lines().filter_map(|line| {
        let mut words = line
            .trim_start_matches([' ', '└', '├', '│'])
            .split_whitespace();
        let (name, path) = (words.next()?, words.next()?);
        path.ends_with(".rs").then(|| (path.to_owned(), name))
    });
    let named: Vec<(String, &str)> = in_table
        .chain(in_walks.filter(|(_, name)| *name != "═══"))
        .collect();
    let missing: Vec<_> = named
        .iter()
        .filter(|(path, name)| !has_item(path, name))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named.len() > 40, "the page was not understood: {named:?}");
}

#[test]
fn what_the_specification_says_holds_a_promise_is_there() {
    let files = workspace::rust_files();
    let page = std::fs::read_to_string(workspace::root().join("SPECIFICATION.md")).unwrap();
    let commands = files
        .iter()
        .find(|(path, _)| path == "crates/bench/src/command.rs")
        .map(|(_, text)| text.to_lowercase())
        .unwrap();
    let is_held = |by: &str| match (by.split_once("::"), by.strip_prefix("shunt bench ")) {
        (Some((file, test)), _) => {
            let (end, function) = (format!("/{file}"), format!("fn {test}("));
            let mut named = files.iter().filter(|(path, _)| path.ends_with(&end));
            named.any(|(_, text)| text.contains(&function))
        }
        (None, Some(command)) => commands.contains(&format!(" {command}(")),
        (None, None) => false,
    };
    let rows = page.lines().filter_map(|line| line.strip_suffix(" |"));
    let rows = rows.filter_map(|line| line.rsplit_once(" | "));
    let promises: Vec<_> = rows.filter(|(_, by)| *by != "held by").collect();
    assert!(promises.len() > 30, "the page was not understood");
    for (promise, by) in promises {
        let named: Vec<&str> = by.split('`').skip(1).step_by(2).collect();
        let missing: Vec<&&str> = named.iter().filter(|by| !is_held(by)).collect();
        assert!(missing.is_empty(), "{promise}: {missing:?}");
        assert!(!named.is_empty() || by.contains("*pending*"), "{promise}");
    }
}
