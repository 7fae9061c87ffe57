#pragma once
// The parts of a script's lines, as scenarios/README.md lists them. A part that makes no sense throws.

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

std::string NextWord(std::istringstream& words);
std::vector<std::string> Split(const std::string& text, char at = ',');
Span ReadSpan(const std::string& seconds);
// "a1/v1" → a1, v1.
std::pair<ArrayId, VolumeId> Volume(const std::string& text);
// "disk=fast" → disk, fast.
Label ReadLabel(const std::string& text);
// "role=db:NoExecute".
Taint ReadTaint(const std::string& text);
// "disk:In:fast,slow+zone:Exists": one term of a node affinity, or a selector of pods.
Requirements ReadTerm(const std::string& text);
// "4/8192": processors, MiB.
Resources ReadResources(const std::string& text);
// The words of a pod about its place.
void ReadScheduling(const std::string& word, std::istringstream& words, Pod& pod);

}  // namespace lunkeeper::fencing
