package systemd

import (
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// Sockets returns the listeners that the service manager passed to this process
// (LISTEN_FDS), by the names of its units (FileDescriptorName=), in the order of
// the units. Without any, it returns nil. Processes that this one starts don't
// get them. The caller closes them; the files of Unix sockets remain then, because
// they belong to the service manager.
func Sockets() (map[string][]net.Listener, error) {
	var all map[string][]net.Listener
	for _, file := range activation.Files(true) {
		listener, err := net.FileListener(file)
		name := file.Name()
		_ = file.Close()
		if err != nil {
			for _, listeners := range all {
				for _, l := range listeners {
					_ = l.Close()
				}
			}
			return nil, fmt.Errorf("socket %q of the service manager: %w", name, err)
		}
		if all == nil {
			all = map[string][]net.Listener{}
		}
		all[name] = append(all[name], listener)
	}
	return all, nil
}
