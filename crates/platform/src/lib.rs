//! The top of the agent platform: the gateway to other platforms, as an agent of this one.
//!
//! The layers below are crates of their own: the Master and the embedded platform (`sealbus-master`), the Remote Node
//! (`sealbus-node`), the agent process (`sealbus-process`), and the layers that these share. The tests beside this
//! crate run all of them together.

pub mod gateway;
