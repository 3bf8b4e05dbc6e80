//! Going on with a sendfile of the engine before: the bytes of its files that are under way are read into the windows, where the programs
//! have left free space for them. See docs/decisions/0086-a-sendfile-goes-on.md.

use super::SocketLayer;
use crate::device::files;
use crate::state::rows::ExtentRow;

impl SocketLayer {
    /// Reads all of it. The rows of sockets for which that did not succeed.
    pub(super) fn take_up_files(&mut self) -> Vec<u32> {
        let failed = self.link.extents.left();
        let failed = failed.filter(|extent| !self.read_left(extent));
        let failed = failed.map(|extent| extent.row).collect();
        self.link.extents.forget_left();
        failed
    }

    /// Reads what of an extent the stack knows and the peer has not acknowledged; `false`: that cannot be.
    fn read_left(&self, extent: &ExtentRow) -> bool {
        if extent.row >= self.sockets.used() {
            return true;
        }
        let record = self.sockets.row(extent.row);
        let connection = record.connection();
        let connection = connection.filter(|_| record.generation == extent.generation);
        let Some(Ok(view)) = connection.map(|one| self.stack.view(one)) else {
            return true;
        };
        let start = extent.start.max(view.acknowledged);
        let end = extent.end.min(view.written);
        if start >= end {
            return true;
        }
        let file = extent.file.number().and_then(crate::state::duplicate);
        let region = self.sockets.regions.find(record.region);
        let window = region.zip(record.pair()).and_then(|(region, pair)| {
            let (send, _) = region.window_pair(pair)?;
            region.try_window(send).ok()
        });
        let offset = extent.offset + (start - extent.start);
        file.zip(window).is_some_and(|(file, window)| {
            end - start <= u64::try_from(window.size()).unwrap_or(0)
                && files::read(&file, offset, &window, start, end)
        })
    }
}
