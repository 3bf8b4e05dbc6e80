//! Pages for a browser that load nothing from elsewhere: no script, no fonts, light and dark by the reader's setting.

const STYLE: &str = ":root{color-scheme:light dark;--text:#222;--back:#fff;--line:#ccc;--soft:#666;--bad:#a00;--good:#1b6e34;--mark:#3470b8;--second:#c9542c;--third:#3a8f4f}\
@media(prefers-color-scheme:dark){:root{--text:#ddd;--back:#181818;--line:#444;--soft:#aaa;--bad:#f77;--good:#6cc785;--mark:#6ea8e8;--second:#e88a66;--third:#6cc785}}\
body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:var(--text);background:var(--back)}\
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .5rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}\
td:first-child,th:first-child{text-align:left}caption{text-align:left;padding:.25rem 0}svg.wide{width:100%;height:auto}.number{white-space:nowrap}.words{text-align:left;min-width:9rem}\
.bad{color:var(--bad)}.good{color:var(--good)}.soft{color:var(--soft);font-size:.85em}.scroll{overflow-x:auto}\
svg text{font-size:11px;fill:currentColor}.bar{fill:var(--mark)}.curve{fill:none;stroke-width:2}pre{white-space:pre-wrap}.axis{stroke:#999}";

/// The beginning of a page, up to its text.
pub fn head(title: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n"
    )
}

/// Its end.
pub const FOOT: &str = "</body></html>\n";

/// Text that holds no markup, whoever wrote it.
pub fn escaped(text: &str) -> String {
    let replaced = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    replaced.replace('"', "&quot;").replace('\'', "&#39;")
}

/// What [`escaped`] was given.
pub fn unescaped(text: &str) -> String {
    let replaced = text
        .replace("&#39;", "'")
        .replace("&quot;", "\"")
        .replace("&gt;", ">");
    replaced.replace("&lt;", "<").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_of_others_is_text() {
        assert_eq!(escaped("<b a='\"&"), "&lt;b a=&#39;&quot;&amp;");
        assert_eq!(unescaped(&escaped("&lt;<b a='\"&")), "&lt;<b a='\"&");
        assert!(head("a<b").contains("<title>a&lt;b</title>"));
    }
}
