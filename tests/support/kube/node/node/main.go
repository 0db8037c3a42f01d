// What a node runs beside its containers, in one program: which one it is, its own name says.
// One program links once and compiles what they share once.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/containerd/containerd/v2/cmd/ctr/app"
	"k8s.io/component-base/cli"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	background := context.Background()
	var err error
	switch name := filepath.Base(os.Args[0]); name {
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(background)))
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
