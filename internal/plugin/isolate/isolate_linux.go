package isolate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/elastic/go-seccomp-bpf"
	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
)

const (
	ownNamespaces = unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	probeTimeout  = 30 * time.Second
)

// bubblewraps are the paths where bubblewrap is looked up.
var bubblewraps = []string{"/usr/bin/bwrap", "/usr/local/bin/bwrap"}

// methods returns the methods to try, the best first, and why some layers are
// not among them.
func (i *Isolation) methods(reasons map[string]string) []method {
	base := method{}
	if abi, err := landlock.LandlockGetABIVersion(); err != nil {
		reasons[LayerFiles] = "the kernel has no Landlock: " + err.Error()
	} else {
		base.landlock = abi
	}
	var err error
	if base.filter, err = filter(false); err != nil {
		reasons[LayerSyscalls] = "system calls can't be filtered: " + err.Error()
	}
	var methods []method
	if path := bubblewrap(); path != "" && !i.options.NoBubblewrap && !i.options.NoNamespaces {
		m := base
		m.bubblewrap, m.landlock = path, 0
		methods = append(methods, m)
	}
	if !i.options.NoNamespaces {
		m := base
		m.namespaces = ownNamespaces
		if os.Geteuid() != 0 {
			m.namespaces |= unix.CLONE_NEWUSER
		}
		methods = append(methods, m)
	}
	return append(methods, base)
}

// bubblewrap returns the path of a bubblewrap that root owns and that isn't
// setuid, "" if there is none.
func bubblewrap() string {
	for _, path := range bubblewraps {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&(0o022|os.ModeSetuid) != 0 {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 {
			return path
		}
	}
	return ""
}

// denied are system calls that no plugin needs, by which programs have escaped
// from sandboxes or attacked the kernel.
var denied = []string{
	"acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "delete_module", "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick",
	"init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount",
	"mount_setattr", "move_mount", "move_pages", "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open", "pidfd_getfd", "pivot_root",
	"process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "reboot", "request_key", "setdomainname", "sethostname", "setns", "settimeofday",
	"swapoff", "swapon", "syslog", "umount2", "unshare", "userfaultfd", "vhangup",
}

// filter returns a seccomp program, in the kernel's format. If streams is set,
// the only sockets are those of TCP and unix.
func filter(streams bool) ([]byte, error) {
	const tiocsti, tioclinux = 0x5412, 0x541c
	conditions := []seccomp.NameWithConditions{
		{Name: "ioctl", Conditions: seccomp.ArgumentConditions{{Argument: 1, Operation: seccomp.Equal, Value: tiocsti}}},
		{Name: "ioctl", Conditions: seccomp.ArgumentConditions{{Argument: 1, Operation: seccomp.Equal, Value: tioclinux}}},
	}
	for _, flag := range []uint64{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWNET, unix.CLONE_NEWPID, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP} {
		conditions = append(conditions, seccomp.NameWithConditions{Name: "clone", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsSet, Value: flag}}})
	}
	if streams {
		for _, family := range []uint64{unix.AF_INET, unix.AF_INET6} {
			is := seccomp.Condition{Argument: 0, Operation: seccomp.Equal, Value: family}
			conditions = append(conditions,
				seccomp.NameWithConditions{Name: "socket", Conditions: seccomp.ArgumentConditions{is, {Argument: 1, Operation: seccomp.BitsNotSet, Value: unix.SOCK_STREAM}}},
				seccomp.NameWithConditions{Name: "socket", Conditions: seccomp.ArgumentConditions{is, {Argument: 2, Operation: seccomp.Equal, Value: unix.IPPROTO_MPTCP}}})
		}
	}
	for _, family := range []uint64{unix.AF_PACKET, unix.AF_VSOCK, unix.AF_ALG, unix.AF_BLUETOOTH, unix.AF_CAN, unix.AF_RDS, unix.AF_TIPC, unix.AF_XDP, unix.AF_KEY} {
		conditions = append(conditions, seccomp.NameWithConditions{Name: "socket", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.Equal, Value: family}}})
	}
	policy := seccomp.Policy{
		DefaultAction: seccomp.ActionAllow,
		Syscalls: []seccomp.SyscallGroup{
			{Names: denied, NamesWithCondtions: conditions, Action: seccomp.ActionErrno},
			// C libraries then use clone, whose flags can be checked.
			{Names: []string{"clone3"}, Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS)},
		},
	}
	instructions, err := policy.Assemble()
	if err != nil {
		return nil, err
	}
	raw, err := bpf.Assemble(instructions)
	if err != nil {
		return nil, err
	}
	var program bytes.Buffer
	for _, r := range raw {
		if err := binary.Write(&program, binary.NativeEndian, unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}); err != nil {
			return nil, err
		}
	}
	return program.Bytes(), nil
}

// What all programs may read: the system's programs and libraries, and settings
// that hold no secrets.
var (
	systemReadable = []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
		"/etc/alternatives", "/etc/ca-certificates", "/etc/crypto-policies", "/etc/gai.conf", "/etc/group", "/etc/host.conf", "/etc/hosts", "/etc/ld.so.cache",
		"/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release",
		"/etc/passwd", "/etc/pki", "/etc/protocols", "/etc/python3", "/etc/resolv.conf", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/timezone",
	}
	kernelReadable = []string{"/proc", "/sys/fs/cgroup", "/sys/kernel/mm", "/sys/devices/system/cpu"}
	devices        = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
)

// launch returns the restrictions of a run under the current method.
func (i *Isolation) launch(ctx context.Context, r Run) (_ *supervise.Launch, started, done func(), err error) {
	l := &supervise.Launch{Namespaces: i.method.namespaces, Drop: true, Files: r.Files}
	var files []*os.File
	started = func() {
		for _, f := range files {
			_ = f.Close()
		}
		files = nil
	}
	forward := func() {}
	done = func() {
		started()
		forward()
	}
	defer func() {
		if err != nil {
			done()
			started, done = func() {}, func() {}
		}
	}()
	if r.Program != nil {
		l.Program = r.Program.File
	}
	if i.user {
		if l.User, err = i.own(r.Dir); err != nil {
			return nil, started, done, err
		}
	}
	if r.Network {
		l.Namespaces &^= unix.CLONE_NEWNET
	}
	readable := slices.Concat(i.options.Readable, r.Readable)
	alone := !r.Network && (l.Namespaces&unix.CLONE_NEWNET != 0 || i.method.bubblewrap != "")
	program := i.method.filter
	if !r.Network && !alone && program != nil {
		if program, err = filter(true); err != nil {
			return nil, started, done, err
		}
	}
	if program != nil {
		if l.Filter, err = piped(program); err != nil {
			return nil, started, done, err
		}
		files = append(files, l.Filter)
	}
	if i.method.landlock > 0 {
		ports := r.Ports
		if alone || r.Network {
			ports = nil
		}
		if l.Ruleset, err = ruleset(i.method.landlock, readable, append(slices.Clone(i.options.Writable), r.Dir), !alone && !r.Network, ports); err != nil {
			return nil, started, done, fmt.Errorf("restrict files with Landlock: %w", err)
		}
		files = append(files, l.Ruleset)
	}
	if i.method.bubblewrap != "" {
		if l.Launcher, err = os.Open("/proc/self/exe"); err != nil {
			return nil, started, done, err
		}
		files = append(files, l.Launcher)
		l.Wrapper = i.wrapper(r, readable)
	}
	if alone && len(r.Forward) > 0 {
		var theirs *os.File
		if theirs, forward, err = forwarding(ctx, r.Forward); err != nil {
			return nil, started, done, err
		}
		files = append(files, theirs)
		l.Sockets = theirs
		for address := range r.Forward {
			l.Forward = append(l.Forward, address)
		}
		slices.Sort(l.Forward)
	}
	if l.Namespaces&unix.CLONE_NEWUSER != 0 && r.Network {
		// The capability for the loopback interface is not needed.
		l.Namespaces &^= unix.CLONE_NEWUTS
	}
	return l, started, done, nil
}

// own gives a run's folder to a user of its own, and returns the user.
func (i *Isolation) own(dir string) (user int, err error) {
	u := i.options.Users
	user = u.First + int(i.next.Add(1)-1)%(u.Last-u.First+1)
	return user, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, user, user) //nolint:gosec // the server just made the folder, and the program does not run yet
	})
}

// piped returns a pipe that holds data.
func piped(data []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data) // it fits into the pipe
	return r, errors.Join(err, w.Close())
}

// ruleset returns a ruleset of Landlock. If network is set, the only TCP ports
// that can be reached are ports, as far as the kernel can restrict them.
func ruleset(abi int, readable, writable []string, network bool, ports []int) (_ *os.File, err error) {
	const (
		read  = landlock.AccessFSReadFile | landlock.AccessFSReadDir | landlock.AccessFSExecute
		write = landlock.AccessFSWriteFile | landlock.AccessFSRemoveDir | landlock.AccessFSRemoveFile | landlock.AccessFSMakeDir | landlock.AccessFSMakeReg |
			landlock.AccessFSMakeSock | landlock.AccessFSMakeFifo | landlock.AccessFSMakeSym
		nodes  = landlock.AccessFSMakeChar | landlock.AccessFSMakeBlock
		onFile = landlock.AccessFSReadFile | landlock.AccessFSExecute | landlock.AccessFSWriteFile | landlock.AccessFSTruncate | landlock.AccessFSIoctlDev
	)
	attr := landlock.RulesetAttr{HandledAccessFS: read | write | nodes}
	all := uint64(read | write)
	if abi >= 2 {
		attr.HandledAccessFS |= landlock.AccessFSRefer
		all |= landlock.AccessFSRefer
	}
	if abi >= 3 {
		attr.HandledAccessFS |= landlock.AccessFSTruncate
		all |= landlock.AccessFSTruncate
	}
	if abi >= 4 && network {
		attr.HandledAccessNet = landlock.AccessNetBindTCP | landlock.AccessNetConnectTCP
	}
	if abi >= 5 {
		attr.HandledAccessFS |= landlock.AccessFSIoctlDev
	}
	if abi >= 6 {
		attr.Scoped = landlock.ScopeAbstractUnixSocket | landlock.ScopeSignal
	}
	fd, err := landlock.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "ruleset")
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	add := func(path string, access uint64) error {
		target, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
			return nil // the program could not open it either
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer func() { _ = unix.Close(target) }()
		var stat unix.Stat_t
		if err := unix.Fstat(target, &stat); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			access &= onFile
		}
		return landlock.LandlockAddPathBeneathRule(fd, &landlock.PathBeneathAttr{AllowedAccess: access, ParentFd: target}, 0)
	}
	for _, path := range slices.Concat(systemReadable, kernelReadable, readable) {
		if err := add(path, read); err != nil {
			return nil, err
		}
	}
	for _, path := range writable {
		if err := add(path, all); err != nil {
			return nil, err
		}
	}
	for _, path := range devices {
		if err := add(path, landlock.AccessFSReadFile|landlock.AccessFSWriteFile); err != nil {
			return nil, err
		}
	}
	if attr.HandledAccessNet != 0 {
		for _, port := range ports {
			rule := landlock.NetPortAttr{AllowedAccess: landlock.AccessNetConnectTCP, Port: uint64(port)} //nolint:gosec // a port
			if err := landlock.LandlockAddNetPortRule(fd, &rule, 0); err != nil {
				return nil, err
			}
		}
	}
	return file, nil
}

// wrapper returns bubblewrap's arguments, up to the launcher.
func (i *Isolation) wrapper(r Run, readable []string) []string {
	arguments := []string{i.method.bubblewrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL", "--die-with-parent", "--new-session"}
	if !r.Network {
		arguments = append(arguments, "--unshare-net")
	}
	arguments = append(arguments, "--proc", "/proc", "--dev", "/dev", "--size", "67108864", "--tmpfs", "/tmp")
	for _, path := range slices.Concat(systemReadable, kernelReadable[1:], readable) {
		arguments = append(arguments, "--ro-bind-try", path, path)
	}
	for _, path := range append(slices.Clone(i.options.Writable), r.Dir) {
		arguments = append(arguments, "--bind-try", path, path)
	}
	return append(arguments, "--remount-ro", "/", "--chdir", filepath.Join(r.Dir, workFolder), "/proc/self/fd/"+strconv.Itoa(supervise.LauncherFile))
}

// workFolder is the working directory of a program in its run's folder.
const workFolder = "work"

// runProbe runs a probe and returns its output.
func (i *Isolation) runProbe(ctx context.Context, program *Program, dir string, args []string) (output string, err error) {
	work := filepath.Join(dir, workFolder)
	if err := os.Mkdir(work, 0o700); err != nil {
		return "", err
	}
	run := Run{Program: program, Dir: dir}
	if i.method.landlock > 0 {
		run.Readable = []string{program.Path}
	}
	launch, started, done, err := i.launch(ctx, run)
	if err != nil {
		return "", err
	}
	defer done()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	errR, errW, err := os.Pipe()
	if err != nil {
		return "", errors.Join(err, w.Close())
	}
	defer func() { _ = errR.Close() }()
	cmd := &exec.Cmd{Path: program.Path, Args: args, Dir: work, Env: []string{"TMPDIR=" + work}, Stdout: w, Stderr: errW}
	process, err := supervise.Start(cmd, supervise.Limits{Launch: launch})
	started()
	_, _ = w.Close(), errW.Close()
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, process.Kill)
	defer stop()
	timer := time.AfterFunc(probeTimeout, process.Kill)
	defer timer.Stop()
	err = process.Wait()
	read := func(f *os.File) string {
		_ = f.SetReadDeadline(time.Now().Add(time.Second))
		data := make([]byte, 4096)
		n, _ := f.Read(data)
		return string(data[:max(n, 0)])
	}
	output = read(r)
	if err != nil {
		if text := strings.TrimSpace(read(errR)); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
	}
	return output, err
}
