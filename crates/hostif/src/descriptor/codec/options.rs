//! Commands that change options.

use super::{Malformed, Op, OptionChanges, SET_OPTION, SET_OPTIONS, SocketOption, Word0, Words};

pub(super) fn option_words(op: Op, id: u64, token: u32) -> Words {
    match op {
        Op::SetOptions {
            changes,
            written_low,
        } => {
            let [a, b, c, d, e] = changes.encode(written_low);
            let word = Word0::plain(SET_OPTIONS, token);
            [word.encode(), id, a, b, c, d, e]
        }
        Op::SetOption {
            option,
            value,
            written_low,
        } => {
            let word = Word0 {
                small: option.code(),
                ..Word0::plain(SET_OPTION, token)
            };
            [word.encode(), id, value, u64::from(written_low), 0, 0, 0]
        }
        _ => unreachable!("invariant: an option is changed"),
    }
}

pub(super) fn set_options(words: &Words) -> Result<Op, Malformed> {
    let [_, _, numbers @ ..] = *words;
    let (changes, written_low) = OptionChanges::decode(numbers)?;
    Ok(Op::SetOptions {
        changes,
        written_low,
    })
}

pub(super) fn set_option(first: &Word0, words: &Words) -> Result<Op, Malformed> {
    Ok(Op::SetOption {
        option: SocketOption::from_code(first.small).ok_or(Malformed)?,
        value: words[2],
        written_low: u32::try_from(words[3]).map_err(|_| Malformed)?,
    })
}
