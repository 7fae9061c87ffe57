#pragma once
// Keeps a file system that kills each node which mounts it from going through the cluster. A node that dies
// alone, within Settings::mount_death of taking a volume, is charged to that volume. With two nodes in a row
// the volume is held back: its pods are left where they are, and no evidence takes it from its node, until a
// person allows it, or a node has lived with it for Settings::mount_trusted. A node that lives with the
// volume for Settings::mount_death, or used it and gave it back, clears the charge of one before it. What is
// charged is kept at the orchestrator, on the volume's object, so that every leader knows it.
//
// Level-triggered and nothing fails, as in decide.h: what cannot be stored counts for this leader alone, and
// is tried again.

#include "fencing/core/state.h"

namespace lunkeeper::fencing {

// True: the death of `node` is being charged to some of `volumes`, and nothing may be decided before that is
// stored. Not charged are shutdowns in good order, and nodes that fell silent together with another.
bool ChargeDeath(State& state, const NodeId& node, const VolumesByArray& volumes);

void NoteChargeSeen(State& state, const VolumeCharged& seen);
void NoteChargeAnswer(State& state, const ChargeVolume& call, Outcome outcome);
// Clears the charges that a living node speaks against, and stores the ones that could not be stored.
void TendCharges(State& state);
// Says which volumes are held back, and how a person allows them.
void ReportHeldBack(State& state);
// For people; of a volume that is held back.
std::string DescribeHeldBack(const State& state, const VolumeId& volume);

}  // namespace lunkeeper::fencing
