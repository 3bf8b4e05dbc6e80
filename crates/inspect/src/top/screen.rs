//! The terminal: takes it, hears keys, gives it back at the end, after a panic and after SIGTERM or SIGHUP.
//!
//! Engines are asked by a thread of its own, so that keys are answered while one of them takes its time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use anyhow::Context as _;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};

use super::{
    model::{Model, Tab},
    sample::{self, Sample},
    view::{self, Input},
};
use crate::engines::Which;

/// How long keys are waited for until something else is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The longest filter.
const FILTER_MAX: usize = 100;

/// Rows of a page.
const PAGE: isize = 20;

/// Until the user quits.
pub fn run(which: Which, model: Model, interval: Duration) -> anyhow::Result<()> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&end)).context("catching signals")?;
    }
    let (samples, taken) = sync_channel(1);
    // Held until the end, where it wakes the sampler.
    let (quit, quits) = sync_channel::<()>(1);
    let sampler = thread::Builder::new()
        .name("sampler".to_owned())
        .spawn(move || take_samples(&which, interval, &samples, &quits))
        .context("starting the thread that asks engines")?;
    // A panic gives the terminal back by the hook that this installs.
    let mut terminal = ratatui::try_init().context("taking the terminal")?;
    let result = watch(&mut terminal, model, &taken, &end);
    let restored = ratatui::try_restore().context("giving the terminal back");
    drop((quit, taken));
    // It ends after the answers that it waits for, which are bounded.
    let _ = sampler.join();
    result.and(restored)
}

fn take_samples(
    which: &Which,
    interval: Duration,
    samples: &SyncSender<Sample>,
    quits: &Receiver<()>,
) {
    while samples.send(sample::take(which)).is_ok() {
        if quits.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn watch(
    terminal: &mut DefaultTerminal,
    mut model: Model,
    taken: &Receiver<Sample>,
    end: &AtomicBool,
) -> anyhow::Result<()> {
    let mut input = Input::Commands;
    loop {
        terminal
            .draw(|frame| view::draw(frame, &model, input))
            .context("drawing")?;
        // Until there is something new to be drawn.
        loop {
            if end.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut is_new = false;
            if let Ok(sample) = taken.try_recv() {
                if !model.paused {
                    model.update(sample);
                }
                is_new = true;
            }
            if event::poll(LOOK).context("waiting for keys")? {
                is_new = true;
                if let Event::Key(key) = event::read().context("reading a key")?
                    && key.kind != KeyEventKind::Release
                    && handle_key(&mut model, &mut input, key)
                {
                    return Ok(());
                }
            }
            if is_new {
                break;
            }
        }
    }
}

/// True: the user quits.
fn handle_key(model: &mut Model, input: &mut Input, key: KeyEvent) -> bool {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(key.code, KeyCode::Char('c' | 'd'));
    }
    if *input == Input::Filter {
        edit_filter(model, input, key.code);
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::F(10) => return true,
        KeyCode::Char('1') => show(model, Tab::Connections),
        KeyCode::Char('2') => show(model, Tab::Programs),
        KeyCode::Char('3') => show(model, Tab::Engines),
        KeyCode::Tab => {
            let at = Tab::ALL.iter().position(|tab| *tab == model.tab);
            show(model, Tab::ALL[(at.unwrap_or(0) + 1) % Tab::ALL.len()]);
        }
        KeyCode::Up => model.move_by(-1),
        KeyCode::Down => model.move_by(1),
        KeyCode::PageUp => model.move_by(-PAGE),
        KeyCode::PageDown => model.move_by(PAGE),
        KeyCode::Home => model.selected = 0,
        KeyCode::End => model.move_by(isize::MAX),
        KeyCode::Char('s') | KeyCode::F(6) => {
            model.sort = model.sort.next();
            model.arrange();
        }
        KeyCode::Char('r') => {
            model.reversed = !model.reversed;
            model.arrange();
        }
        KeyCode::Char('p') => model.paused = !model.paused,
        KeyCode::Char('/') | KeyCode::F(4) => *input = Input::Filter,
        KeyCode::Esc => {
            model.filter.clear();
            model.arrange();
        }
        _ => {}
    }
    false
}

fn show(model: &mut Model, tab: Tab) {
    model.tab = tab;
    model.selected = 0;
}

fn edit_filter(model: &mut Model, input: &mut Input, code: KeyCode) {
    match code {
        KeyCode::Enter => *input = Input::Commands,
        KeyCode::Esc => {
            model.filter.clear();
            *input = Input::Commands;
        }
        KeyCode::Backspace => drop(model.filter.pop()),
        KeyCode::Char(letter) if model.filter.len() < FILTER_MAX => model.filter.push(letter),
        _ => {}
    }
    model.arrange();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::{Sort, model::tests::two_samples};

    fn press(model: &mut Model, input: &mut Input, keys: &[KeyCode]) -> bool {
        let mut pressed = keys.iter();
        pressed.any(|code| handle_key(model, input, KeyEvent::new(*code, KeyModifiers::NONE)))
    }

    #[test]
    fn keys_choose_sort_filter_and_quit() {
        let mut model = two_samples(Sort::Rate);
        let mut input = Input::Commands;
        let letters: Vec<KeyCode> = "/:1000q".chars().map(KeyCode::Char).collect();
        assert!(!press(&mut model, &mut input, &letters));
        assert_eq!((&*model.filter, model.connections.len()), (":1000q", 0));
        press(
            &mut model,
            &mut input,
            &[KeyCode::Backspace, KeyCode::Enter],
        );
        assert_eq!((input, model.connections.len()), (Input::Commands, 1));
        press(&mut model, &mut input, &[KeyCode::Esc, KeyCode::Down]);
        assert_eq!((model.connections.len(), model.selected), (2, 1));
        press(
            &mut model,
            &mut input,
            &[KeyCode::F(6), KeyCode::Char('r'), KeyCode::Tab],
        );
        assert_eq!((model.sort, model.reversed), (Sort::Sent, true));
        assert_eq!((model.tab, model.selected), (Tab::Programs, 0));
        assert!(press(&mut model, &mut input, &[KeyCode::F(10)]));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        input = Input::Filter;
        assert!(handle_key(&mut model, &mut input, interrupt));
    }
}
