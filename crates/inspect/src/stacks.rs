//! `shunt stacks`: the independent stacks of this host, each with its interfaces, routes and order. The kernel's is one,
//! with all its interfaces; each engine is one.
//!
//! Everything is asked at the moment of the call: the kernel by rtnetlink(7), engines by their control sockets.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use hostif::control::QueryKind;
use netlink::Kernel;
use serde::Serialize;
use serde_json::{Value, json};

use crate::engines::{
    Found, Which,
    answer::{Silent, ask_each},
    namespace::Namespace,
};
use output::{Table, print_result};

/// Show every independent stack: its interfaces, routes and order.
///
/// The kernel's stack is one entry with all its interfaces, each engine is one. The order is that in which they are
/// tried for a socket that names no address: the engines that its program was given, in that order, then the kernel.
/// Policy routing (`ip rule`) is not shown: of the kernel's routes those of the main table.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt stacks
  shunt stacks --json | jq '.[] | {order, stack, routes}'
  shunt stacks --all

Exit status: 0; 2 where the kernel did not answer.")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Print JSON: an array with one object for each stack.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Stack {
    /// 0 is tried first, in its network namespace.
    order: usize,
    /// `kernel`, or the engine's control socket.
    stack: String,
    /// Of the network namespace, where that is not this command's own.
    namespace: Option<u64>,
    /// The engine's process.
    pid: Option<u32>,
    /// Why an engine does not answer; nothing more is known of it.
    reason: Option<String>,
    interfaces: Vec<Interface>,
    routes: Vec<Route>,
}

#[derive(Debug, Serialize)]
struct Interface {
    index: Option<u64>,
    name: String,
    /// The engine's way to it; none of the kernel's.
    driver: Option<String>,
    mtu_bytes: u64,
    hardware_address: Option<String>,
    is_up: Option<bool>,
    addresses: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Route {
    destination: String,
    gateway: Option<String>,
    interface: String,
    metric: u64,
    source: Option<String>,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // Without an engine the kernel's stack is the only one.
    let found = arguments.which.find_any();
    let mut places: Vec<Option<Namespace>> = vec![None];
    for one in &found {
        if !places.contains(&one.namespace) {
            places.push(one.namespace.clone());
        }
    }
    let answers = ask_each(found, |channels| {
        let first = channels.first().context("no core")?;
        Ok((first.pid()?, first.query(QueryKind::Interfaces)?))
    });
    let mut stacks = Vec::new();
    for place in places {
        let here = answers.iter().filter(|(found, _)| found.namespace == place);
        let engines = here.enumerate();
        let engines: Vec<Stack> = engines
            .map(|(order, (found, answer))| of_engine(order, found, answer))
            .collect();
        let order = engines.len();
        stacks.extend(engines);
        stacks.push(of_kernel(order, place.as_ref())?);
    }
    print_result(arguments.json, &stacks, || {
        let texts: Vec<String> = stacks.iter().map(text).collect();
        texts.join("\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn of_engine(order: usize, found: &Found, answer: &Result<(u32, Value), Silent>) -> Stack {
    let mut stack = Stack {
        order,
        stack: found.name.clone(),
        namespace: found.namespace.as_ref().map(|one| one.inode),
        pid: None,
        reason: None,
        interfaces: Vec::new(),
        routes: Vec::new(),
    };
    match answer {
        Err(silent) => {
            stack.pid = silent.pid;
            stack.reason = Some(silent.reason.clone());
        }
        Ok((pid, interfaces)) => {
            stack.pid = Some(*pid);
            for one in interfaces.as_array().into_iter().flatten() {
                stack.interfaces.push(interface_of(one));
                let name = one["interface"].as_str().unwrap_or_default();
                let routes = one["routes"].as_array().into_iter().flatten();
                stack
                    .routes
                    .extend(routes.map(|route| route_of(route, name)));
            }
        }
    }
    stack
}

fn interface_of(one: &Value) -> Interface {
    let word = |name: &str| one[name].as_str().map(str::to_owned);
    let addresses = one["addresses"].as_array().into_iter().flatten();
    Interface {
        index: one["index"].as_u64(),
        name: word("interface").unwrap_or_default(),
        driver: word("driver"),
        mtu_bytes: one["mtu_bytes"].as_u64().unwrap_or(0),
        hardware_address: word("hardware_address"),
        is_up: None,
        addresses: addresses
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect(),
    }
}

fn route_of(route: &Value, interface: &str) -> Route {
    let word = |name: &str| route[name].as_str().map(str::to_owned);
    Route {
        destination: word("destination").unwrap_or_default(),
        gateway: word("gateway"),
        interface: interface.to_owned(),
        metric: route["metric"].as_u64().unwrap_or(0),
        source: word("source"),
    }
}

fn of_kernel(order: usize, place: Option<&Namespace>) -> anyhow::Result<Stack> {
    let read = match place {
        None => Kernel::read(),
        Some(namespace) => namespace.enter(Kernel::read)?,
    };
    let kernel = read.context("asking the kernel for its interfaces and routes (rtnetlink)")?;
    let name_of = |index: u32| {
        let link = kernel.links.iter().find(|link| link.index == index);
        link.map_or_else(|| index.to_string(), |link| link.name.clone())
    };
    let interface = |link: &netlink::Link| Interface {
        index: Some(link.index.into()),
        name: link.name.clone(),
        driver: None,
        mtu_bytes: link.mtu_bytes.into(),
        hardware_address: link.hardware_address.map(|address| address.to_string()),
        is_up: Some(link.is_up),
        addresses: link
            .addresses
            .iter()
            .map(|(own, len)| format!("{own}/{len}"))
            .collect(),
    };
    let route = |(index, route): &(u32, netlink::Route)| Route {
        destination: format!("{}/{}", route.destination, route.prefix_len),
        gateway: route.gateway.map(|gateway| gateway.to_string()),
        interface: name_of(*index),
        metric: route.metric.into(),
        source: route.source.map(|source| source.to_string()),
    };
    Ok(Stack {
        order,
        stack: "kernel".to_owned(),
        namespace: place.map(|one| one.inode),
        pid: None,
        reason: None,
        interfaces: kernel.links.iter().map(interface).collect(),
        routes: kernel.routes.iter().map(route).collect(),
    })
}

fn text(stack: &Stack) -> String {
    let process = stack
        .pid
        .map_or(String::new(), |pid| format!(" (process {pid})"));
    let place = stack
        .namespace
        .map_or(String::new(), |inode| format!(" in net:[{inode}]"));
    let mut text = format!("{}: {}{process}{place}", stack.order, stack.stack);
    if let Some(reason) = &stack.reason {
        return format!("{text}: {reason}\n");
    }
    text.push('\n');
    let star = |text: &Option<String>| text.clone().unwrap_or_else(|| "*".to_owned());
    let mut interfaces = Table::new("interface | index | driver | MTU | hardware | addresses");
    for one in &stack.interfaces {
        let down = if one.is_up == Some(false) {
            " (down)"
        } else {
            ""
        };
        interfaces.row([
            format!("{}{down}", one.name),
            json!(one.index).to_string(),
            star(&one.driver),
            one.mtu_bytes.to_string(),
            star(&one.hardware_address),
            one.addresses.join(", "),
        ]);
    }
    text += &interfaces.render();
    if !stack.routes.is_empty() {
        let mut routes = Table::new("route | via | interface | metric | source");
        for one in &stack.routes {
            routes.row([
                one.destination.clone(),
                star(&one.gateway),
                one.interface.clone(),
                one.metric.to_string(),
                star(&one.source),
            ]);
        }
        text += &routes.render();
    }
    text
}
