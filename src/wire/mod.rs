//! Headers as checked views over byte slices and builders, one file per header.
//!
//! `new_checked` looks at every length once; after it no accessor can fail, for any byte string.

pub mod mac;

pub use mac::MacAddr;
