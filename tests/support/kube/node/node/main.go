// What a node runs beside its kubelet and its containers, in one program: which one it is, its own name says.
// One program links once and compiles what they share once.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/containerd/containerd/v2/cmd/ctr/app"
)

func main() {
	var err error
	switch name := filepath.Base(os.Args[0]); name {
	case "containerd":
		err = command.App().Run(os.Args)
	case "ctr":
		err = app.New().Run(os.Args)
	default:
		err = fmt.Errorf("%s is none of the components in this program", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
