package client

// restored returns the keys of the pods that the agent had not seen in its run when
// they were read, in order. No event tells that it has: so one of them after the other
// is looked at, and when that one was seen all of them are read.
func (k *Cache) restored() (keys []string) {
	for _, pod := range k.List() {
		if pod.Restored {
			keys = append(keys, pod.Key)
		}
	}
	return keys
}

// after returns the key that comes after another one, the first one after the last, ""
// if there are none.
func after(keys []string, key string) string {
	for _, next := range keys {
		if next > key {
			return next
		}
	}
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}
