//! Views against real logs and a real file system.

#[cfg(test)]
mod audit;
#[cfg(test)]
mod catching_up;
#[cfg(test)]
mod control;
#[cfg(test)]
mod db;
#[cfg(test)]
mod files;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod index;
#[cfg(test)]
mod indexed;
#[cfg(test)]
mod issues;
#[cfg(test)]
mod read;
#[cfg(test)]
mod rebuild;
#[cfg(test)]
mod world;
