//go:build linux && amd64

package exact

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	cmd := exec.Command("/tmp/p3/tgt")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	sc := bufio.NewScanner(out)
	sc.Scan()
	fmt.Fprintln(in, "park 10")
	sc.Scan()
	began := time.Now()
	r, err := Start(context.Background(), Options{PID: cmd.Process.Pid, Waits: true, Locks: true})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("started in", time.Since(began), "trap", r.trap)
	for _, c := range []string{"mutex 50 5ms", "channel 50 5ms", "cond 50 5ms", "sleep 50 5ms", "rwmutex 20 5ms", "two 20 5ms", "load 20000"} {
		fmt.Fprintln(in, c)
		sc.Scan()
		fmt.Println(c, sc.Text())
	}
	began = time.Now()
	cs, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("stopped in", time.Since(began))
	for _, c := range cs {
		fmt.Println("==", c.Source, c.Profile.Duration, c.Settings, c.Loss, c.Warnings, c.Cost)
		for i, s := range c.Profile.Samples {
			fmt.Println(s.Values, c.Profile.Labels(s.Labels))
			for _, f := range c.Profile.Frames(s.Stack) {
				fmt.Println("      ", f.Function, f.Line)
			}
			if i > 40 {
				break
			}
		}
		for _, l := range c.Locks {
			fmt.Printf("%+v\n", l)
		}
	}
}
