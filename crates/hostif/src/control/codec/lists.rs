//! The longer parts of messages: the addresses of an engine, and the filter of a capture.

use super::{ADDRESSES, Invalid, REPLY, Reader, Writer};
use crate::control::{
    Addresses, CaptureFilter, CaptureProtocol, EngineAddress, SNAP_BYTES_MAX, Sharing, SocketKinds,
};

const MAX_ADDRESSES: usize = 150;
/// One for each family.
const MAX_GATEWAYS: usize = 2;

impl Addresses {
    pub(super) fn encode(&self) -> Vec<u8> {
        let addresses = &self.addresses[..self.addresses.len().min(MAX_ADDRESSES)];
        let gateways = &self.gateways[..self.gateways.len().min(MAX_GATEWAYS)];
        let mut writer = Writer::new(REPLY | ADDRESSES);
        writer.u32(self.scope_id).u8(self.kinds.bits());
        writer.u8(self.sharing as u8);
        writer.count(gateways.len());
        for gateway in gateways {
            writer.address(Some(*gateway));
        }
        writer.count(addresses.len());
        for entry in addresses {
            writer
                .address(Some(entry.address))
                .u8(entry.prefix_len)
                .u32(entry.mtu_bytes);
        }
        writer.finish()
    }
}

pub(super) fn decode_filter(reader: &mut Reader<'_>) -> Result<CaptureFilter, Invalid> {
    let snap_bytes = reader.u32()?;
    if !(1..=SNAP_BYTES_MAX).contains(&snap_bytes) {
        return Err(Invalid::Malformed);
    }
    Ok(CaptureFilter {
        snap_bytes,
        host: reader.address()?,
        port: Some(reader.u16()?).filter(|&port| port != 0),
        protocol: CaptureProtocol::from_number(reader.u8()?).ok_or(Invalid::Malformed)?,
    })
}

pub(super) fn decode_addresses(reader: &mut Reader<'_>) -> Result<Addresses, Invalid> {
    let scope_id = reader.u32()?;
    let kinds = SocketKinds::from_bits(reader.u8()?).ok_or(Invalid::Malformed)?;
    let sharing = Sharing::from_number(reader.u8()?).ok_or(Invalid::Malformed)?;
    let count = reader.count(0, MAX_GATEWAYS)?;
    let gateways = (0..count).map(|_| reader.address()?.ok_or(Invalid::Malformed));
    let gateways = gateways.collect::<Result<_, Invalid>>()?;
    let count = reader.count(0, MAX_ADDRESSES)?;
    let addresses = (0..count).map(|_| {
        Ok(EngineAddress {
            address: reader.address()?.ok_or(Invalid::Malformed)?,
            prefix_len: reader.u8()?,
            mtu_bytes: reader.u32()?,
        })
    });
    let addresses = addresses.collect::<Result<_, Invalid>>()?;
    Ok(Addresses {
        addresses,
        gateways,
        scope_id,
        kinds,
        sharing,
    })
}
