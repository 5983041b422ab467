//! Locks on a majority of independent stores: the model of their tokens, and the backend.

mod model;
