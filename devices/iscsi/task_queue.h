#pragma once
// Tasks in the order in which they are to send, through their own hooks: nothing allocates. A task is in one
// queue at most. One thread.

#include "devices/iscsi/task.h"

namespace lunkeeper::iscsi {

class TaskQueue {
 public:
  void Clear() {
    head_ = nullptr;
    tail_ = nullptr;
  }

  Task* front() const { return head_; }

  void PushBack(Task* task) {
    task->internal.queued = true;
    task->internal.next = nullptr;
    (head_ == nullptr ? head_ : tail_->internal.next) = task;
    tail_ = task;
  }

  // Mostly the front one; any other is a task that the target has ended early.
  void Remove(Task* task) {
    Task* previous = nullptr;
    for (Task* at = head_; at != task; at = at->internal.next) previous = at;
    (previous == nullptr ? head_ : previous->internal.next) = task->internal.next;
    if (tail_ == task) tail_ = previous;
    task->internal.queued = false;
  }

 private:
  Task* head_ = nullptr;
  Task* tail_ = nullptr;
};

}  // namespace lunkeeper::iscsi
