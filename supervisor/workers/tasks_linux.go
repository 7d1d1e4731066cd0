package workers

import "postern/supervisor/order"

// tickTasks ends the instances of tasks that have ended, by whatever way, forgets them,
// and tells posternd of the tasks whose directories nothing needs any more.
func (w *Workers) tickTasks() {
	for task := range w.dirs {
		if !w.gate.TaskOver(task) {
			continue
		}
		alive := false
		for _, s := range w.sets {
			for at, inst := range s.insts {
				if at.Task != task {
					continue
				}
				if w.stopInstance(inst, 0); inst.state != instIdle {
					alive = true
					continue
				}
				delete(s.insts, at)
			}
		}
		for _, o := range w.jails { // of sets that are ended already
			alive = alive || o.inst != nil && o.inst.at.Task == task
		}
		if alive {
			continue
		}
		delete(w.dirs, task)
		w.gate.ForgetTask(task)
		w.order(order.TaskGone{Task: task})
	}
}

// taskDirs takes posternd's word of directories that a former authority had made. Those
// of tasks that have ended meanwhile are given up in the next tick.
func (w *Workers) taskDirs(m order.TaskDirs) {
	for _, task := range m.Tasks {
		w.dirs[task] = true
	}
}
