//! Files of one crate that need each other in a circle can only be read together. The files are nodes, the paths
//! that their code names (`crate::…`, `super::…`, children of a module) are edges; a circle is a strongly connected
//! component. Tests are left out. What a path names is found by its text: what macros make is not seen.

use std::collections::{BTreeMap, BTreeSet};

use testkit::workspace;

/// Files that may need each other.
const FILES_MAX: usize = 8;

/// Path of a module from the top of its crate; the top's is empty.
type Module = Vec<String>;

/// The module of a file below `src/`, if it is part of the product.
fn module(path: &str) -> Option<Module> {
    let inner = path.strip_suffix(".rs")?;
    let mut parts: Module = inner.split('/').map(str::to_owned).collect();
    if parts.iter().any(|part| part == "tests") {
        return None;
    }
    if matches!(parts.last()?.as_str(), "mod" | "lib" | "main") {
        parts.pop();
    }
    Some(parts)
}

/// The code without comments, text in quotes, and the tests at its end.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut is_of_test = false;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        // `mod tests;` names a file; `mod tests {` is the end of this one.
        if is_of_test && line.trim_start().starts_with("mod ") && line.contains('{') {
            break;
        }
        is_of_test = line.trim() == "#[cfg(test)]";
        let unquoted: String = line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
        code.push_str(&unquoted);
        code.push('\n');
    }
    code
}

/// Identifiers, `::`, and each other mark by itself.
fn tokens(code: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = if is_name(first) {
            rest.find(|c| !is_name(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    tokens
}

/// Takes the tree of paths that begins at `at` (`a::{b, c::D}`), each with `prefix` in front, and returns where it ends.
fn paths(tokens: &[&str], mut at: usize, prefix: &[&str], found: &mut Vec<Module>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at) {
            Some(&"{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    let before = at;
                    at = paths(tokens, at, &path, found).max(before + 1);
                }
                return at + 1;
            }
            Some(name) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                path.push(name);
                at += 1;
            }
            _ => break,
        }
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    if path.len() > prefix.len() || prefix.is_empty() {
        found.push(path.iter().map(|&name| name.to_owned()).collect());
    }
    at
}

/// Every path of more than one name in a file's code, and those that it imports.
fn named(code: &str) -> Vec<Module> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_use = tokens[at] == "use";
        let starts = tokens.get(at + 1) == Some(&"::") && tokens[at] != "::";
        let goes_on = at > 0 && tokens[at - 1] == "::";
        at = if is_use {
            paths(&tokens, at + 1, &[], &mut found)
        } else if starts && !goes_on && tokens[at] != ">" {
            paths(&tokens, at, &[], &mut found).max(at + 1)
        } else {
            at + 1
        };
    }
    found
}

/// The module that a path names, or one of whose items it names; `None`: another crate's.
fn target(
    modules: &BTreeMap<Module, BTreeMap<String, Module>>,
    from: &Module,
    path: &[String],
) -> Option<Module> {
    let mut path = path;
    let mut at = from.clone();
    match path.first()?.as_str() {
        "crate" => {
            at.clear();
            path = &path[1..];
        }
        "self" => path = &path[1..],
        "super" => {
            while let Some(("super", rest)) =
                path.split_first().map(|(one, rest)| (one.as_str(), rest))
            {
                at.pop();
                path = rest;
            }
        }
        // An item of this file, or a crate, unless a child has the name.
        first => {
            let mut child = from.clone();
            child.push(first.to_owned());
            if !modules.contains_key(&child) {
                return None;
            }
        }
    }
    // `a::{self, B}` names the module `a`.
    for name in path.iter().filter(|name| *name != "self") {
        let mut next = at.clone();
        next.push(name.clone());
        if modules.contains_key(&next) {
            at = next;
        } else if let Some(there) = modules.get(&at).and_then(|names| names.get(name)) {
            // What a module hands on from another is that one's.
            return Some(there.clone());
        } else {
            break;
        }
    }
    Some(at)
}

/// Each module's edges, of one crate's files.
fn edges(files: &[(Module, String)]) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut modules: BTreeMap<Module, BTreeMap<String, Module>> = files
        .iter()
        .map(|(module, _)| (module.clone(), BTreeMap::new()))
        .collect();
    let handed_on: Vec<_> = files
        .iter()
        .map(|(module, code)| (module, re_exports(&modules, module, code)))
        .collect();
    for (module, names) in handed_on {
        modules.insert(module.clone(), names);
    }
    files
        .iter()
        .map(|(module, code)| {
            let targets = named(code)
                .iter()
                .filter_map(|path| target(&modules, module, path))
                .filter(|target| target != module && modules.contains_key(target))
                .collect();
            (module.clone(), targets)
        })
        .collect()
}

/// Names that a module takes from others by `use`, and whose they are.
fn re_exports(
    modules: &BTreeMap<Module, BTreeMap<String, Module>>,
    module: &Module,
    code: &str,
) -> BTreeMap<String, Module> {
    let tokens = tokens(code);
    let mut names = BTreeMap::new();
    for at in (0..tokens.len()).filter(|at| tokens[*at] == "use") {
        let mut found = Vec::new();
        paths(&tokens, at + 1, &[], &mut found);
        for path in found {
            if let (Some(name), Some(whose)) = (path.last(), target(modules, module, &path)) {
                names.insert(name.clone(), whose);
            }
        }
    }
    names
}

/// Modules that can be reached from one.
fn reached(edges: &BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in edges.get(module).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen
}

/// The largest set of modules each of which reaches all others.
fn largest_circle(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Module> {
    let reach: BTreeMap<&Module, BTreeSet<Module>> = edges
        .keys()
        .map(|from| (from, reached(edges, from)))
        .collect();
    let circle = |module: &Module| -> Vec<Module> {
        let back = |other: &&Module| reach[*other].contains(module);
        reach[module].iter().filter(back).cloned().collect()
    };
    edges
        .keys()
        .map(circle)
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

/// The modules of each crate with the code that they have.
fn crates() -> BTreeMap<String, Vec<(Module, String)>> {
    let mut crates: BTreeMap<String, Vec<(Module, String)>> = BTreeMap::new();
    for (path, text) in workspace::rust_files() {
        let below = path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"));
        if let Some((name, inner)) = below
            && let Some(module) = module(inner)
        {
            crates
                .entry(name.to_owned())
                .or_default()
                .push((module, code(&text)));
        }
    }
    crates
}

#[test]
fn no_more_than_eight_files_of_a_crate_need_each_other() {
    let mut wrong = Vec::new();
    for (name, files) in crates() {
        let circle = largest_circle(&edges(&files));
        if circle.len() > FILES_MAX {
            let files: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            wrong.push(format!("{name}: {}: {}", circle.len(), files.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
}

#[test]
fn a_circle_is_found_through_groups_parents_and_what_is_handed_on() {
    let file = |path: &str, text: &str| (module(path).unwrap(), code(text));
    let files = [
        file("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Item;\n"),
        file("a/mod.rs", "use crate::{b::{self, Two}};\n"),
        file("b.rs", "fn f(x: crate::Item) {}\n"),
        file("c.rs", "// use crate::b;\nuse super::a::inner::One;\n"),
        file(
            "a/inner.rs",
            "impl super::Of {}\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n",
        ),
        file("d.rs", "use crate::a;\n"),
    ];
    let names = |modules: Vec<Module>| -> Vec<String> {
        modules.iter().map(|module| module.join("::")).collect()
    };
    assert_eq!(
        names(largest_circle(&edges(&files))),
        ["a", "a::inner", "b", "c"]
    );
    assert_eq!(module("a/tests/b.rs"), None);
}
