// All that the tests' image holds: words that are done one after the other. It is also the sandbox of every pod.
//
//	say TEXT   gpus (those that it was given and can open)   hold (until it is told to stop)   exit CODE
//	work SECONDS (of those in which the file /clock/passing is there)
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const tick = 20 * time.Millisecond

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	words := os.Args[1:]
	next := func() string {
		word := words[0]
		words = words[1:]
		return word
	}
	for len(words) > 0 {
		switch word := next(); word {
		case "say":
			fmt.Println(next())
		case "gpus":
			fmt.Println(gpus())
		case "work":
			seconds, _ := strconv.ParseFloat(next(), 64)
			begun()
			work(stop, time.Duration(seconds*float64(time.Second)))
		case "hold":
			wait(stop, nil)
		case "exit":
			code, _ := strconv.Atoi(next())
			os.Exit(code)
		default:
			fmt.Fprintf(os.Stderr, "%q is no word of this program\n", word)
			os.Exit(2)
		}
	}
}

// For whoever counts: a file a time, by the host's name, which is a Job's and a number.
func begun() {
	host, _ := os.Hostname()
	if file, err := os.CreateTemp("/clock", host+".*.begun"); err == nil {
		file.Close()
	}
}

// Time counts only while somebody lets it: nothing is over before it was looked at.
func work(stop chan os.Signal, left time.Duration) {
	for left > 0 {
		before := time.Now()
		wait(stop, time.After(tick))
		if _, err := os.Stat("/clock/passing"); err == nil {
			left -= time.Since(before)
		}
	}
}

// What is told to stop has failed, as most programs do that write nothing more.
func wait(stop chan os.Signal, over <-chan time.Time) {
	select {
	case <-stop:
		os.Exit(128 + int(syscall.SIGTERM))
	case <-over:
	}
}

// The UUIDs that came with the devices, as `YARD_GPU_N`, and the device files that open.
func gpus() string {
	var told, open []string
	for _, variable := range os.Environ() {
		if name, uuid, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "YARD_GPU_") {
			told = append(told, uuid)
		}
	}
	files, _ := filepath.Glob("/dev/nvidia*")
	for _, path := range files {
		if file, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			file.Close()
			open = append(open, filepath.Base(path))
		}
	}
	slices.Sort(told)
	slices.Sort(open)
	return "gpus " + strings.Join(told, ",") + " open " + strings.Join(open, ",")
}
