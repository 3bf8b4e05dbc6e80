//! A folder of results: pages that `--report` wrote, and files of `shunt ping --save`. It is looked at when the page asks; links in it
//! lead nowhere, and of large folders the newest files are shown.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use anyhow::{Context as _, ensure};
use meter::{Report, saved};
use serde_json::{Value, json};

/// Files that are shown at most.
const FILES_MAX: usize = 200;
/// Files that are looked at most.
const ENTRIES_MAX: usize = 10_000;
/// Longest file.
const FILE_MAX_BYTES: u64 = 8 << 20;
/// Where the title of a page is looked for.
const TITLE_WITHIN_BYTES: u64 = 8 << 10;
/// Runs that are shown at most.
const RUNS_MAX: usize = 1_000;

pub struct Folder(PathBuf);

struct Entry {
    name: String,
    modified_s: u64,
    bytes: u64,
}

impl Folder {
    /// A folder that is there.
    pub fn open(path: PathBuf) -> anyhow::Result<Self> {
        let found = fs::metadata(&path).with_context(|| format!("--reports {}", path.display()))?;
        ensure!(
            found.is_dir(),
            "--reports {}: name the folder that the results are in",
            path.display()
        );
        Ok(Self(path))
    }

    /// The newest first.
    fn entries(&self) -> std::io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.0)?.take(ENTRIES_MAX) {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // What has gone meanwhile is not shown.
            let Ok(about) = entry.metadata() else {
                continue;
            };
            if about.is_file() && (is_page(&name) || is_runs(&name)) {
                let since = about.modified().ok();
                let since = since.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                found.push(Entry {
                    name,
                    modified_s: since.map_or(0, |since| since.as_secs()),
                    bytes: about.len(),
                });
            }
        }
        found.sort_by(|a, b| (b.modified_s, &a.name).cmp(&(a.modified_s, &b.name)));
        Ok(found)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl dash::Reports for Folder {
    fn list(&self) -> Value {
        let folder = self.0.display().to_string();
        let entries = match self.entries() {
            Ok(entries) => entries,
            Err(error) => return json!({ "folder": folder, "error": error.to_string() }),
        };
        let (mut pages, mut runs, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        for one in entries.iter().take(FILES_MAX) {
            if one.bytes > FILE_MAX_BYTES {
                unread.push(json!({ "name": one.name, "why": "longer than 8 MiB" }));
            } else if is_page(&one.name) {
                pages.push(json!({
                    "name": one.name, "title": title(&self.path(&one.name)), "modified_s": one.modified_s, "bytes": one.bytes,
                }));
            } else {
                match saved::read(&self.path(&one.name)) {
                    Ok(reports) => runs.extend(reports.iter().map(|run| row(one, run))),
                    Err(error) => {
                        unread.push(json!({ "name": one.name, "why": format!("{error:#}") }))
                    }
                }
            }
        }
        let left_out =
            entries.len().saturating_sub(FILES_MAX) + runs.len().saturating_sub(RUNS_MAX);
        runs.truncate(RUNS_MAX);
        json!({ "folder": folder, "pages": pages, "runs": runs, "unread": unread, "left_out": left_out })
    }

    fn page(&self, name: &str) -> Option<String> {
        if !is_page(name) || name.contains('/') {
            return None;
        }
        let path = self.path(name);
        let about = fs::symlink_metadata(&path).ok()?;
        (about.is_file() && about.len() <= FILE_MAX_BYTES).then_some(())?;
        read(&path, FILE_MAX_BYTES)
    }
}

fn is_page(name: &str) -> bool {
    name.ends_with(".html")
}

fn is_runs(name: &str) -> bool {
    name.ends_with(".json")
}

fn read(path: &Path, most_bytes: u64) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(most_bytes).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What stands in a page's title, as it is written there: escaped.
fn title(path: &Path) -> Option<String> {
    let text = read(path, TITLE_WITHIN_BYTES)?;
    let (_, rest) = text.split_once("<title>")?;
    let (title, _) = rest.split_once("</title>")?;
    Some(output::html::unescaped(title))
}

fn row(file: &Entry, run: &Report) -> Value {
    let found = run.round_trip.as_ref();
    json!({
        "file": file.name, "modified_s": file.modified_s, "label": run.label, "what": run.kind, "target": run.target,
        "stack": run.stack, "payload_bytes": run.payload_bytes, "sent": run.counts.sent, "lost": run.counts.lost,
        "mean_us": found.map(|one| one.mean_us), "p50_us": found.and_then(|one| one.median_us()),
        "p99_us": found.and_then(|one| one.percentile_us(99.0)), "warnings": run.warnings.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dash::Reports as _;

    #[test]
    fn what_is_no_page_of_the_folder_is_not_shown() {
        let root = std::env::temp_dir().join(format!("shunt-reports-{}", std::process::id()));
        let inside = root.join("inside");
        fs::create_dir_all(&inside).unwrap();
        fs::write(root.join("secret.html"), "secret").unwrap();
        fs::write(inside.join("page.html"), "<title>A &amp; B</title>").unwrap();
        fs::write(inside.join("notes.txt"), "no result").unwrap();
        fs::write(inside.join("broken.json"), "{").unwrap();
        std::os::unix::fs::symlink("../secret.html", inside.join("link.html")).unwrap();
        let folder = Folder::open(inside.clone()).unwrap();
        let list = folder.list();
        assert_eq!(list["pages"].as_array().unwrap().len(), 1, "{list}");
        assert_eq!(list["pages"][0]["title"], "A & B");
        assert_eq!(list["unread"][0]["name"], "broken.json");
        assert!(folder.page("page.html").unwrap().contains("A &amp; B"));
        for name in ["../secret.html", "link.html", "notes.txt", "none.html"] {
            assert_eq!(folder.page(name), None, "{name}");
        }
        assert!(Folder::open(inside.join("page.html")).is_err());
        assert!(Folder::open(root.join("none")).is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
