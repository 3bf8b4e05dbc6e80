//! `established` and `connected`: the lines that they stand for.

use super::{flow, seconds};

/// Peers are ordinary unless the script says otherwise.
const USUAL_OPTIONS: &str = "<mss 1000, sackok, ws 7>";
/// Seconds. As long as a busy machine may take for what takes microseconds: else the host takes segments for lost (RFC 8985 §7.2).
const USUAL_RTT: &str = "0.02";

/// The lines that `text` stands for, if it is a shorthand.
pub(super) fn expand(text: &str) -> Result<Option<Vec<String>>, String> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (name, number) = match word.split_once('@') {
        Some((name, number)) => (name, flow(Some(number))?),
        None => (word, 1),
    };
    let passive = match name {
        "established" => true,
        "connected" => false,
        _ => return Ok(None),
    };
    let given = Given::parse(rest)?;
    Ok(Some(if passive {
        given.passive(number)
    } else {
        given.active(number)
    }))
}

struct Given {
    options: String,
    rtt: String,
    window: Option<String>,
}

impl Given {
    fn parse(text: &str) -> Result<Self, String> {
        let mut given = Self {
            options: USUAL_OPTIONS.to_owned(),
            rtt: USUAL_RTT.to_owned(),
            window: None,
        };
        let mut text = text.trim();
        if let Some(rest) = text.strip_prefix('<') {
            let (options, rest) = rest.split_once('>').ok_or("options end with >")?;
            given.options = format!("<{options}>");
            text = rest.trim();
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.chunks(2) {
            match *pair {
                ["rtt", time] => {
                    seconds(time)?;
                    time.clone_into(&mut given.rtt);
                }
                ["win", window] => given.window = Some(window.to_owned()),
                _ => {
                    return Err(format!(
                        "{:?}: known are <options>, rtt and win",
                        pair.join(" ")
                    ));
                }
            }
        }
        Ok(given)
    }

    fn window(&self) -> String {
        self.window
            .as_ref()
            .map_or_else(String::new, |window| format!(" win {window}"))
    }

    /// The host listens; connection 1 makes the listener `l`.
    fn passive(&self, flow: u16) -> Vec<String> {
        let mut lines = Vec::new();
        let socket = socket(flow);
        if flow == 1 {
            lines.extend(["l = socket()", "bind(l)", "listen(l, 16)"].map(str::to_owned));
        }
        lines.push(format!("in@{flow} SYN 0 {}", self.options));
        lines.push(format!("out@{flow} SYN+ACK 0 ack 1"));
        lines.push(format!(
            "+{} in@{flow} ACK 1 ack 1{}",
            self.rtt,
            self.window()
        ));
        lines.push(format!("{socket} = accept(l)"));
        lines
    }

    /// The host connects.
    fn active(&self, flow: u16) -> Vec<String> {
        let socket = socket(flow);
        vec![
            format!("{socket} = socket()"),
            format!("connect({socket}, @{flow}) blocks"),
            format!("out@{flow} SYN 0"),
            format!("+{} in@{flow} SYN+ACK 0 ack 1 {}", self.rtt, self.options),
            format!("out@{flow} ACK 1 ack 1"),
            format!("connect({socket}) returns 0"),
        ]
    }
}

fn socket(flow: u16) -> String {
    if flow == 1 {
        "c".to_owned()
    } else {
        format!("c{flow}")
    }
}
