//! The loader against the kernel, where this process may: trivial programs and maps.

use super::Register::{R0, R1, R2, R3, R10};
use super::*;

/// What the test is to work with; says past libtest's capture, in the form that is counted, why it cannot.
fn permitted<T>(test: &str, made: Result<T, Error>) -> Option<T> {
    use std::io::Write as _;
    match made {
        Ok(made) => Some(made),
        Err(error @ (Error::NotPermitted { .. } | Error::Unsupported { .. })) => {
            let _ = writeln!(io::stderr(), "skipped: {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn constant(result: i32) -> Vec<Instruction> {
    let mut program = Assembler::new();
    program.exit_with(result);
    program.finish().unwrap()
}

const XDP: ProgramKind = ProgramKind::Xdp { fragments: true };

#[test]
fn a_trivial_program_runs_and_answers() {
    let loaded = Program::load(XDP, "trivial", &constant(2));
    let Some(program) = permitted("a_trivial_program_runs_and_answers", loaded) else {
        return;
    };
    let frame = [7; 64];
    let ran = program.run_on(&frame).unwrap();
    assert_eq!((ran.verdict, ran.frame.as_slice()), (2, frame.as_slice()));
}

#[test]
fn a_refused_program_is_an_error_with_the_verifiers_words() {
    let mut program = Assembler::new();
    program.alu(Operation::Move, R0, R3).exit();
    let loaded = Program::load(XDP, "unset", &program.finish().unwrap());
    let error = match loaded {
        Err(Error::Refused { log, name, .. }) => {
            assert_eq!(name, "unset");
            log
        }
        other => {
            let loaded = permitted(
                "a_refused_program_is_an_error_with_the_verifiers_words",
                other,
            );
            assert!(loaded.is_none(), "loaded");
            return;
        }
    };
    assert!(error.contains("R3 !read_ok"), "{error}");
}

#[test]
fn a_hash_holds_what_was_put_in_and_is_bounded() {
    let made = Map::create(MapKind::Hash, "hash", 2, 4, 2);
    let Some(map) = permitted("a_hash_holds_what_was_put_in_and_is_bounded", made) else {
        return;
    };
    let mut value = [0; 4];
    assert!(!map.look_up(b"ab", &mut value).unwrap());
    map.update(b"ab", b"1234").unwrap();
    map.update(b"cd", b"5678").unwrap();
    map.update(b"ab", b"9abc").unwrap();
    assert!(map.look_up(b"ab", &mut value).unwrap());
    assert_eq!(&value, b"9abc");
    let full = map.update(b"ef", b"0000").unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::E2BIG));
    assert!(map.delete(b"ab").unwrap());
    assert!(!map.delete(b"ab").unwrap());
    assert!(!map.look_up(b"ab", &mut value).unwrap());
}

#[test]
fn a_prefix_map_finds_the_longest_and_an_array_has_every_index() {
    let test = "a_prefix_map_finds_the_longest_and_an_array_has_every_index";
    let made = Map::create(MapKind::LongestPrefix, "prefixes", 8, 1, 4);
    let Some(prefixes) = permitted(test, made) else {
        return;
    };
    let key = |bits: u32, address: [u8; 4]| [bits.to_ne_bytes(), address].concat();
    prefixes.update(&key(8, [10, 0, 0, 0]), &[1]).unwrap();
    prefixes.update(&key(24, [10, 9, 0, 0]), &[2]).unwrap();
    let mut value = [0];
    assert!(
        prefixes
            .look_up(&key(32, [10, 9, 0, 7]), &mut value)
            .unwrap()
    );
    assert_eq!(value, [2]);
    assert!(
        !prefixes
            .look_up(&key(32, [11, 9, 0, 7]), &mut value)
            .unwrap()
    );

    let array = Map::create(MapKind::Array, "array", 4, 8, 3).unwrap();
    let mut value = [1; 8];
    assert!(array.look_up(&2_u32.to_ne_bytes(), &mut value).unwrap());
    assert_eq!(value, [0; 8]);
    assert!(!array.look_up(&3_u32.to_ne_bytes(), &mut value).unwrap());
}

#[test]
fn a_program_reads_a_map_that_changes_under_it() {
    let test = "a_program_reads_a_map_that_changes_under_it";
    let Some(map) = permitted(test, Map::create(MapKind::Array, "verdict", 4, 4, 1)) else {
        return;
    };
    let mut program = Assembler::new();
    let absent = program.label();
    program
        .store(Width::Word, R10, -4, 0)
        .alu(Operation::Move, R2, R10)
        .alu(Operation::Add, R2, -4)
        .load_map(R1, &map)
        .call(Helper::LookUp)
        .jump_if(Condition::Equal, R0, 0, absent)
        .load(Width::Word, R0, R0, 0)
        .place(absent)
        .exit();
    let loaded = Program::load(XDP, "reads", &program.finish().unwrap());
    let Some(program) = permitted(test, loaded) else {
        return;
    };
    for verdict in [1_u32, 2] {
        map.update(&0_u32.to_ne_bytes(), &verdict.to_ne_bytes())
            .unwrap();
        assert_eq!(program.run_on(&[0; 60]).unwrap().verdict, verdict);
    }
}

#[test]
#[should_panic(expected = "sizes")]
fn a_key_of_another_size_is_refused_before_the_kernel_reads_it() {
    let test = "a_key_of_another_size_is_refused_before_the_kernel_reads_it";
    match permitted(test, Map::create(MapKind::Hash, "hash", 4, 4, 1)) {
        Some(map) => drop(map.update(&[0; 3], &[0; 4])),
        None => panic!("skipped, as a panic with these sizes"),
    }
}

#[test]
fn a_link_to_no_interface_is_refused() {
    let loaded = Program::load(XDP, "nowhere", &constant(2));
    let Some(program) = permitted("a_link_to_no_interface_is_refused", loaded) else {
        return;
    };
    for mode in [XdpMode::Generic, XdpMode::Native] {
        let error = Link::xdp(&program, u32::MAX >> 1, mode).unwrap_err();
        assert!(matches!(error, Error::System { .. }), "{error}");
    }
}
