//! Faults of single nodes and of all of them: kill, pause, stop, loss of the connection to the database, and a clock that is
//! set. The last part of each history is free of faults.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{faults::Cut, node::Node, random::Random, world::World};

/// Starts one node, and applies the faults of a single node to it.
pub async fn of_one(world: Arc<World>, nodes: Arc<[Node]>, n: usize, random: Random) {
    let node = &nodes[n];
    tokio::time::sleep(random.millis(0, 500)).await;
    node.start();
    loop {
        passes(&world, random.millis(500, 15_000)).await;
        if world.until_calm().is_zero() {
            break;
        }
        match random.below(20) {
            0..7 => {
                node.kill();
                let down = if random.chance(300) { random.millis(8_000, 35_000) } else { random.millis(0, 4_000) };
                passes(&world, down).await;
                node.start();
            }
            7..11 => {
                node.pause();
                if random.chance(700) {
                    passes(&world, random.millis(100, 20_000)).await;
                } else {
                    // When the node resumes, other nodes have taken over, but its lease seems alive, because the clock
                    // was set back.
                    passes(&world, random.millis(14_000, 30_000)).await;
                    set_back(&world, &random);
                }
                node.resume();
            }
            11..14 => {
                let drain = random.millis(0, 8_000);
                let within = if random.chance(200) { random.millis(0, 2_000) } else { Duration::from_secs(30) };
                node.stop(drain, within.min(world.until_calm())).await;
                passes(&world, random.millis(0, 3_000)).await;
                node.start();
            }
            14..18 if world.scene.shared() => {
                node.cut(Some(*random.pick(&[Cut::Refused, Cut::Silent, Cut::Deaf])));
                passes(&world, random.millis(200, 22_000)).await;
                node.cut(None);
            }
            _ => {}
        }
    }
    node.heal();
}

/// Sets the clock, kills all nodes at once, and ends all faults at the end.
pub async fn of_all(world: Arc<World>, nodes: Arc<[Node]>, random: Random) {
    loop {
        passes(&world, random.millis(2_000, 30_000)).await;
        if world.until_calm().is_zero() {
            break;
        }
        match random.below(10) {
            0..6 if world.scene.patient => {}
            0..3 => world.clock.jump(random.below(60_000) as i64),
            3..6 => set_back(&world, &random),
            6 if world.scene.shared() => {
                nodes.iter().for_each(Node::kill);
                passes(&world, random.millis(0, 20_000)).await;
                nodes.iter().for_each(Node::start);
            }
            _ => {}
        }
    }
    nodes.iter().for_each(Node::heal);
    world.calm.store(true, Ordering::SeqCst);
}

fn set_back(world: &World, random: &Random) {
    world.clock.jump(-(random.below(6_000) as i64));
}

/// Waits, but not beyond the end of the faults.
async fn passes(world: &World, time: Duration) {
    tokio::time::sleep(time.min(world.until_calm())).await;
}
