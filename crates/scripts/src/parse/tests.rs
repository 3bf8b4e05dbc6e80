//! Errors point at file and line; no input is a panic.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::script::{CallResult, Match, Wanted};

fn body(lines: &str) -> Result<Script, ParseError> {
    parse("folder/name", &format!("# what it holds\n{lines}\n"))
}

fn problem(lines: &str) -> String {
    body(lines).unwrap_err().to_string()
}

#[test]
fn header_lines_and_events_are_told_apart() {
    let script = body(
        "sysctl tcp_sack=0\nengine --flag value\nmtu 1400\nip4 only\nslow\ndiffers some-key\n\
         open: not yet\nskip kernel ip6: never\n\nsilence 0.1 # a comment",
    )
    .unwrap();
    assert_eq!(script.about, "what it holds");
    assert_eq!(script.sysctls, [("tcp_sack".to_owned(), "0".to_owned())]);
    assert_eq!(script.engine, ["--flag", "value"]);
    assert_eq!(
        (script.mtu, script.only, script.slow),
        (Some(1400), Some(Family::Ip4), true)
    );
    assert_eq!(script.differs, ["some-key"]);
    assert_eq!(script.open[0].scope.side, Some(Side::Shunt));
    assert_eq!(
        script.skip[0].scope,
        Scope {
            side: Some(Side::Kernel),
            family: Some(Family::Ip6)
        }
    );
    assert_eq!(script.events.len(), 1);
    assert_eq!(script.events[0].line, 11);
}

#[test]
fn a_segment_has_its_parts_in_any_order_after_its_bits() {
    let script =
        body("+0.2~0.05 out?@2 noPSH+ACK 1:101 ack 5 win >0 <sack 1:2, ts * $a, ...> ecn ce")
            .unwrap();
    let Action::Out {
        segment,
        need: Need::Optional,
    } = &script.events[0].action
    else {
        panic!("not an expectation");
    };
    assert_eq!(
        (segment.flow, segment.flags, segment.clear),
        (2, 0x10, 0x08)
    );
    assert!(matches!(segment.window, Some(Match::Above(_))));
    let options = segment.options.as_ref().unwrap();
    assert!(options.open_ended && options.list.len() == 2);
    let When::After(span) = script.events[0].when else {
        panic!("no time")
    };
    assert_eq!(span.from, Duration::from_millis(150));
}

#[test]
fn calls_say_what_becomes_of_them() {
    let script =
        body("c = accept(l) blocks\naccept(l) returns 0\nread(c, 10) = ECONNRESET\nerror(c) = 0")
            .unwrap();
    let Action::Call(call) = &script.events[0].action else {
        panic!("no call")
    };
    assert!(matches!(call.result, CallResult::Blocks));
    assert_eq!(call.makes.as_deref(), Some("c"));
    let Action::Call(call) = &script.events[2].action else {
        panic!("no call")
    };
    assert!(
        matches!(&call.result, CallResult::Returns(Wanted::Word(word)) if word == "ECONNRESET")
    );
    assert_eq!(call.arguments, ["10"]);
}

#[test]
fn a_shorthand_stands_for_lines_with_its_number() {
    let script = body("established@3 <mss 500> rtt 0.1 win 20").unwrap();
    let texts: Vec<&str> = script
        .events
        .iter()
        .map(|event| event.text.as_str())
        .collect();
    let lines = [
        "in@3 SYN 0 <mss 500>",
        "out@3 SYN+ACK 0 ack 1",
        "+0.1 in@3 ACK 1 ack 1 win 20",
        "c3 = accept(l)",
    ];
    assert_eq!(texts, lines);
    assert!(script.events.iter().all(|event| event.line == 2));
}

#[test]
fn errors_name_the_file_the_line_and_what_is_known() {
    assert!(problem("silence 0.1\nin SIN 0").starts_with("folder/name:3: "));
    for (line, words) in [
        ("in SIN 0", "\"SIN\" is no control bit"),
        ("in SYN 0 <mss", "end with >"),
        ("in SYN 0 <mss x>", "no number"),
        ("in ACK 1:*:2", "no number"),
        ("out ACK *:5", "known only from a number on"),
        ("+x in ACK 1", "no time"),
        ("+0.2..0.1 in ACK 1", "ends before"),
        ("jump(c)", "no call"),
        ("read(c, 1, 2)", "arguments"),
        ("read(c", "ends with )"),
        ("accept(l)", "makes a socket"),
        ("c = read(c) = 5", "makes no socket"),
        ("read() = 5", "needs a socket"),
        ("in@0 ACK 1", "a flow is a number"),
        ("in ICMP nothing about 1", "no ICMP error"),
        ("mtu 5", "an MTU"),
        ("differs", "names one row"),
        ("kernel: silence 0.1", "differs KEY"),
        ("sysctl tcp_sack=0\nsilence 1", "what that is for Shunt"),
        ("", "nothing happens"),
        ("established rtt", "known are"),
    ] {
        let problem = problem(line);
        assert!(problem.contains(words), "{line}: {problem}");
    }
    assert!(
        parse("x", "silence 1\n")
            .unwrap_err()
            .problem
            .contains("comment")
    );
}

/// Lines that are nearly right: the more interesting half of what can be wrong.
fn nearly() -> impl Strategy<Value = String> {
    const WORDS: &str = "\
        in out out? out~ +0.1 @1 SYN ACK SYN+ACK 1:2 1:2/3 * ack win <mss 1460> <> <sack 1:2> urg ecn ce ICMP too-big \
        about c = accept(l) read(c, 5) blocks returns kernel: ip6: sysctl setting a=b engine mtu slow open: \
        established rtt silence renew@2 $a MSS > < ) ( # é .. ~ in@65536";
    let words: Vec<&str> = WORDS.split(' ').collect();
    let words = prop::sample::select(words);
    prop::collection::vec(words, 0..9).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in ".{0,200}") {
        let _ = parse("x", &format!("# a\n{text}"));
    }

    #[test]
    fn no_nearly_right_line_is_a_panic(lines in prop::collection::vec(nearly(), 1..4)) {
        let _ = body(&lines.join("\n"));
    }
}
