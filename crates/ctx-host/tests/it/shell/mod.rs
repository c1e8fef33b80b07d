//! Shells against a real bash and a real dash.

mod behaviour;
mod support;
