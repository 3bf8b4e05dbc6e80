//! A driver in front of another: one macro hands on the methods that a decorator does not change.

/// Methods of [`Driver`](crate::Driver) that a decorator hands on to the driver behind it as they are:
/// `forward_driver!(this => this.inner; flush_tx, wait_fd);` inside of `impl Driver for …`.
#[macro_export]
macro_rules! forward_driver {
    ($this:ident => $inner:expr; $($method:ident),+ $(,)?) => {
        $($crate::forward_driver!(@$method $this $inner);)+
    };
    (@caps $this:ident $inner:expr) => {
        fn caps(&self) -> &$crate::Caps {
            let $this = self;
            $inner.caps()
        }
    };
    (@rx_burst $this:ident $inner:expr) => {
        fn rx_burst(
            &mut self,
            budget: usize,
            sink: &mut dyn FnMut($crate::RxFrame<'_>),
        ) -> ::std::io::Result<usize> {
            let $this = self;
            $inner.rx_burst(budget, sink)
        }
    };
    (@may_have_frames $this:ident $inner:expr) => {
        fn may_have_frames(&self) -> bool {
            let $this = self;
            $inner.may_have_frames()
        }
    };
    (@tx_burst $this:ident $inner:expr) => {
        fn tx_burst(&mut self, frames: &[$crate::TxFrame<'_>]) -> ::std::io::Result<usize> {
            let $this = self;
            $inner.tx_burst(frames)
        }
    };
    (@flush_tx $this:ident $inner:expr) => {
        fn flush_tx(&mut self) -> ::std::io::Result<()> {
            let $this = self;
            $inner.flush_tx()
        }
    };
    (@wait_fd $this:ident $inner:expr) => {
        fn wait_fd(&self) -> Option<::std::os::fd::BorrowedFd<'_>> {
            let $this = self;
            $inner.wait_fd()
        }
    };
    (@prepare_wait $this:ident $inner:expr) => {
        fn prepare_wait(&mut self) -> ::std::io::Result<bool> {
            let $this = self;
            $inner.prepare_wait()
        }
    };
    (@stop_watch $this:ident $inner:expr) => {
        fn stop_watch(&mut self) -> ::std::io::Result<()> {
            let $this = self;
            $inner.stop_watch()
        }
    };
    (@wait_deadline_us $this:ident $inner:expr) => {
        fn wait_deadline_us(&self) -> Option<u64> {
            let $this = self;
            $inner.wait_deadline_us()
        }
    };
    (@listen_to $this:ident $inner:expr) => {
        fn listen_to(&mut self, group: [u8; 6], listen: bool) -> ::std::io::Result<()> {
            let $this = self;
            $inner.listen_to(group, listen)
        }
    };
    (@has_peer_news $this:ident $inner:expr) => {
        fn has_peer_news(&self) -> bool {
            let $this = self;
            $inner.has_peer_news()
        }
    };
    (@poll_local_peer $this:ident $inner:expr) => {
        fn poll_local_peer(&mut self) -> Option<$crate::LocalPeerChange> {
            let $this = self;
            $inner.poll_local_peer()
        }
    };
    (@local_peers $this:ident $inner:expr) => {
        fn local_peers(&mut self) -> Option<&mut dyn $crate::LocalPeers> {
            let $this = self;
            $inner.local_peers()
        }
    };
    (@attend $this:ident $inner:expr) => {
        fn attend(&mut self) -> $crate::Presence {
            let $this = self;
            $inner.attend()
        }
    };
    (@counters $this:ident $inner:expr) => {
        fn counters(&self) -> $crate::Counters {
            let $this = self;
            $inner.counters()
        }
    };
    (@mode $this:ident $inner:expr) => {
        fn mode(&self) -> Option<&'static str> {
            let $this = self;
            $inner.mode()
        }
    };
    (@complaints $this:ident $inner:expr) => {
        fn complaints(&self) -> Vec<String> {
            let $this = self;
            $inner.complaints()
        }
    };
}

impl<D: crate::Driver + ?Sized> crate::Driver for Box<D> {
    forward_driver!(this => **this;
        caps, rx_burst, may_have_frames, tx_burst, flush_tx, wait_fd, prepare_wait, stop_watch, wait_deadline_us,
        listen_to, poll_local_peer, has_peer_news, local_peers, attend, counters, mode, complaints);
}
