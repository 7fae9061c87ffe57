#pragma once
// The tasks of a session: which slots are free, and which task a tag of the target's means.
//
// A tag's lower half is its task's slot, and its upper half counts uses. So a tag is not soon used again, and
// an answer that comes twice, or to a command that is long done, means no task here.
//
// One thread. Nothing allocates after the constructor. Tasks belong to the table and never move.

#include <cstdint>
#include <vector>

#include "devices/iscsi/task.h"

namespace lunkeeper::iscsi {

class TaskTable {
 public:
  explicit TaskTable(uint32_t depth);  // at most 1024

  // All slots are free afterwards. Tags go on: those of an earlier session mean nothing in the next one.
  void ForgetAll();
  // The task that TakeTask will take, to be filled by the caller; nullptr: all are in use.
  Task* NextFree() { return free_.empty() ? nullptr : &tasks_[free_.back()]; }
  // Takes the task that NextFree has returned: clears its result, and gives it a tag.
  void TakeTask(Task* task);
  // The task in use that has this tag; nullptr: none.
  Task* FindTask(uint32_t tag);
  void FreeTask(Task* task);

 private:
  std::vector<Task> tasks_;
  std::vector<uint32_t> free_;  // slots, as a stack
  uint32_t uses_ = 0;
};

}  // namespace lunkeeper::iscsi
