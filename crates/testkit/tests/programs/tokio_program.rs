//! A program on tokio: an echo of many connections with half-close, which is this test binary again with a role.
//!
//! The words that it is told stand in the variable `TOKIO_PROGRAM`: `serve ADDRESS` or `ask ADDRESS`. What it says begins
//! with a mark, for libtest speaks on the same stream.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const CONNECTIONS: u8 = 50;
const BYTES: usize = 200_000;

#[test]
#[ignore = "the program that the row `tokio` starts"]
fn tokio_program() {
    let Ok(words) = std::env::var("TOKIO_PROGRAM") else {
        return;
    };
    let (role, address) = words.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_io()
        .build()
        .unwrap();
    let ended = if role == "serve" {
        runtime.block_on(serve(address))
    } else {
        runtime.block_on(ask(address))
    };
    if let Err(error) = ended {
        println!("\nsaid: {}", error.kind());
    }
}

async fn serve(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.split();
            tokio::io::copy(&mut reader, &mut writer).await?;
            writer.shutdown().await
        });
    }
}

/// All at once: each sends, ends its direction and reads to the end.
async fn ask(address: &str) -> io::Result<()> {
    let mut tasks = Vec::new();
    for number in 0..CONNECTIONS {
        let stream = TcpStream::connect(address).await?;
        tasks.push(tokio::spawn(one(stream, number)));
    }
    let mut same = 0;
    for task in tasks {
        same += usize::from(task.await??);
    }
    println!("\nsaid: {same} of {CONNECTIONS} came back");
    Ok(())
}

async fn one(stream: TcpStream, number: u8) -> io::Result<bool> {
    let (mut reader, mut writer) = stream.into_split();
    let sent = vec![number; BYTES + usize::from(number)];
    let expected = sent.clone();
    let sending = tokio::spawn(async move {
        writer.write_all(&sent).await?;
        writer.shutdown().await
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await?;
    sending.await??;
    Ok(received == expected)
}
