#pragma once
// The same question to several arrays at the same time, for a waiting operator: one array that hangs
// delays the answer by the limit of its own calls, and so do ten.

#include <thread>
#include <utility>
#include <vector>

#include "devices/array/arrays.h"

namespace lunkeeper {

// The answers, in the order of `arrays`, once all are there. `ask(array)` is called on a thread of its own
// for each, and what it uses must be made for that.
template <class Ask>
auto AskEach(const std::vector<NamedArray>& arrays, const Ask& ask) {
  std::vector<decltype(ask(arrays.front()))> answers(arrays.size());
  std::vector<std::jthread> threads;
  threads.reserve(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i)
    threads.emplace_back([&answer = answers[i], &array = arrays[i], &ask] { answer = ask(array); });
  threads.clear();  // waits for each
  return answers;
}

}  // namespace lunkeeper
