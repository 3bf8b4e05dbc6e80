//! What the browser gets: the page's own files, and the scenarios of the repository. All are part of
//! the program.

/// A file of the page.
#[derive(Debug)]
pub struct Asset {
    /// Its path on the server.
    pub path: &'static str,
    /// Its media type.
    pub kind: &'static str,
    pub text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($path:literal, $kind:expr, $file:literal) => {
        Asset {
            path: $path,
            kind: $kind,
            text: include_str!(concat!("../assets/", $file)),
        }
    };
}

/// Every file of the page.
pub const ASSETS: &[Asset] = &[
    asset!("/", HTML, "index.html"),
    asset!("/live.html", HTML, "live.html"),
    asset!("/live.js", SCRIPT, "live.js"),
    asset!("/stages.js", SCRIPT, "stages.js"),
    asset!("/reports.js", SCRIPT, "reports.js"),
    asset!("/style.css", "text/css; charset=utf-8", "style.css"),
    asset!("/icon.svg", "image/svg+xml", "icon.svg"),
    asset!("/app.js", SCRIPT, "app.js"),
    asset!("/state.js", SCRIPT, "state.js"),
    asset!("/controls.js", SCRIPT, "controls.js"),
    asset!("/keys.js", SCRIPT, "keys.js"),
    asset!("/tour.js", SCRIPT, "tour.js"),
    asset!("/svg.js", SCRIPT, "svg.js"),
    asset!("/response.js", SCRIPT, "response.js"),
    asset!("/processor.js", SCRIPT, "processor.js"),
    asset!("/timeline.js", SCRIPT, "timeline.js"),
    asset!("/queues.js", SCRIPT, "queues.js"),
    asset!("/export.js", SCRIPT, "export.js"),
];

/// A scenario of the repository.
#[derive(Debug)]
pub struct Shipped {
    /// Its file's name without the ending.
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! shipped {
    ($name:literal) => {
        Shipped {
            name: $name,
            text: include_str!(concat!("../../../scenarios/", $name, ".toml")),
        }
    };
}

/// Every scenario of the repository, in the order in which the page offers them.
pub const SCENARIOS: &[Shipped] = &[
    shipped!("fig8"),
    shipped!("fig7"),
    shipped!("fig9"),
    shipped!("fig10"),
    shipped!("sustained"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    fn names_in(folder: &str) -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = fs::read_dir(path).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn every_scenario_of_the_repository_is_offered() {
        let offered = SCENARIOS.iter().map(|s| format!("{}.toml", s.name));
        assert_eq!(
            offered.collect::<BTreeSet<_>>(),
            names_in("../../scenarios")
        );
    }

    #[test]
    fn every_file_of_the_page_is_served() {
        let served = ASSETS.iter().map(|asset| match asset.path {
            "/" => "index.html".to_owned(),
            path => path.trim_start_matches('/').to_owned(),
        });
        assert_eq!(served.collect::<BTreeSet<_>>(), names_in("assets"));
    }

    #[test]
    fn before_the_first_sample_the_page_says_that_it_asks_and_nothing_that_may_be_wrong() {
        let page = ASSETS.iter().find(|asset| asset.path == "/live.html");
        let text = page.unwrap().text;
        assert!(text.contains(">The engines are being asked.</p>"));
        for how in ["stages-how", "reports-how"] {
            assert!(
                text.contains(&format!("id=\"{how}\" class=\"explain\" hidden>")),
                "{how}"
            );
        }
    }

    #[test]
    fn the_page_names_nothing_outside_itself_and_is_readable() {
        for asset in ASSETS {
            let lines = asset.text.lines().count();
            assert!(lines <= 500, "{}: {lines} lines", asset.path);
            for (at, _) in asset.text.match_indices("http") {
                let rest = &asset.text[at..];
                // The name of SVG's namespace is no address that anybody opens.
                let harmless =
                    rest.starts_with("http://www.w3.org/2000/svg") || !rest.contains("://");
                let address = rest.starts_with("http://") || rest.starts_with("https://");
                assert!(harmless || !address, "{}: {:.60}", asset.path, rest);
            }
        }
    }
}
