//! The paper's sums, and what a path that cannot be says.

use super::*;
use crate::paper::Facts;

fn composed(name: &str, bytes: f64, load: f64) -> Composition {
    let path = Path::parse(builtin(name).unwrap()).unwrap();
    path.compose(bytes, load).unwrap()
}

fn near(ours: f64, wanted: f64) {
    assert!((ours - wanted).abs() < 1e-6, "{ours} for {wanted}");
}

#[test]
fn the_papers_sums_are_exact() {
    let facts = Facts::datacenter_latency();
    near(
        composed("pcie-fabric", 64.0, 0.0).least_ns(),
        facts.number("dc.fabric.example"),
    );
    near(composed("pcie-fabric", 64.0, 0.0).most_ns(), 1100.0);
    near(composed("memory-nic", 64.0, 0.0).least_ns(), 270.0);
    near(composed("memory-nic", 64.0, 0.0).most_ns(), 435.0);
    near(
        composed("dpdk-64", 64.0, 0.0).least_ns(),
        facts.number("dc.t4.sum"),
    );
    let whole = facts.field("dc.t2", "64");
    near(whole - 1346.0, facts.number("dc.t4.rest"));
}

#[test]
fn components_and_technologies_are_the_papers() {
    let facts = Facts::datacenter_latency();
    let ends = |name: &str| components()[name].latency_ns.unwrap().ends();
    for (name, fact) in [("memory", "dc.mem"), ("qpi", "dc.qpi"), ("pcie", "dc.pcie")] {
        let (least, most) = facts.range(fact);
        assert_eq!(ends(name), [least, most], "{name}");
    }
    near(ends("pcie-switch")[0], facts.range("dc.pcie.switch").0);
    near(
        ends("ethernet-switch-cut-through")[0],
        facts.number("dc.eth.switch.min"),
    );
    assert_eq!(technologies().len(), 5);
    near(
        technologies()[0].bandwidth_gbps,
        facts.field("dc.t1.qpi", "bandwidth_gbps"),
    );
}

#[test]
fn the_fit_over_packet_sizes_stays_within_its_residual() {
    let facts = Facts::datacenter_latency();
    let path = Path::parse("[[component]]\nuse = \"dpdk-one-way\"").unwrap();
    for bytes in [64, 128, 256, 512, 1024] {
        let ours = path.compose(f64::from(bytes), 0.0).unwrap().least_ns();
        let measured = facts.field("dc.t2", &bytes.to_string());
        assert!((ours - measured).abs() < 22.0, "{bytes}: {ours} {measured}");
    }
}

#[test]
fn three_tiers_sum_by_kind_to_the_whole() {
    let tier3 = composed("tier3", 1500.0, 0.0);
    let kinds: f64 = tier3.by_kind().iter().map(|(_, least, _)| least).sum();
    near(kinds, tier3.least_ns());
    let switching = tier3.by_kind()[1];
    assert_eq!(switching.0, Kind::Switching);
    // Five switches: 190 ns and 64 bytes at 10 Gbit/s each.
    near(switching.1, 5.0 * (190.0 + 51.2));
    let propagation = tier3.by_kind()[2];
    near(propagation.1, 266.0 * 5.0);
}

#[test]
fn a_load_adds_the_wait_of_m_d_1_and_grows_without_bound() {
    let idle = composed("tier3", 1250.0, 0.0);
    let busy = composed("tier3", 1250.0, 0.5);
    // Six components serve a packet in 1 µs; half load waits half a service.
    near(busy.least_ns() - idle.least_ns(), 6.0 * 500.0);
    let path = Path::parse(builtin("tier3").unwrap()).unwrap();
    let error = path.compose(1250.0, 1.0).unwrap_err().to_string();
    assert!(error.contains("no steady state"), "{error}");
}

#[test]
fn storing_receives_the_whole_packet_and_cutting_through_its_header() {
    let with = |name: &str| {
        let text = format!("[[component]]\nuse = \"{name}\"\nrate_gbps = 10");
        let path = Path::parse(&text).unwrap();
        path.compose(1250.0, 0.0).unwrap().least_ns()
    };
    near(with("ethernet-switch-store-and-forward"), 1190.0);
    near(with("ethernet-switch-cut-through"), 190.0 + 51.2);
}

#[test]
fn what_cannot_be_composed_is_named() {
    let error = |text: &str| Path::parse(text).unwrap_err().to_string();
    assert!(error("").contains("no [[component]]"));
    assert!(error("[[component]]\nlatency = 3").contains("line 2"));
    assert!(error("[[component]]\nuse = \"moon\"").contains("component 1 (moon)"));
    assert!(error("[[component]]\nuse = \"cable\"").contains("needs length_m"));
    let line = "[[component]]\nuse = \"moon\"";
    assert!(error(line).starts_with("line 2: component 1"));
    for (key, said) in [
        (
            "latency_ns = [9, 3]",
            "9 at least cannot be above 3 at most",
        ),
        ("latency_ns = -5", "latency_ns cannot be -5"),
        (
            "latency_ns = 5\nper_byte_ns = nan",
            "per_byte_ns cannot be NaN",
        ),
        ("latency_ns = 5\nrate_gbps = 0", "rate_gbps cannot be 0"),
        ("latency_ns_per_m = 5\nlength_m = -1", "cannot be -"),
        ("kind = \"host\"", "has no latency_ns"),
    ] {
        let whole = error(&format!(
            "[[component]]\nuse = \"qpi\"\n\n[[component]]\nname = \"a\"\n{key}"
        ));
        assert!(whole.contains("component 2 (a): "), "{whole}");
        assert!(whole.contains(said), "{whole}");
        let line: usize = whole["line ".len()..]
            .split(':')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!((4..=7).contains(&line), "{whole}");
    }
    let store = "[[component]]\nuse = \"serialisation\"";
    assert!(error(store).contains("needs rate_gbps"));
}
