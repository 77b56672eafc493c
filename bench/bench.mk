# Benchmarks.

BENCHES    := $(patsubst bench/%.c,%,$(wildcard bench/*.c))
$(B)/obj/bench/%.o tidy/bench/%.c: EXTRA_CFLAGS = \
  -DSM_90_CUBIN='"$(CURDIR)/bench/emu/sm_90.cubin"' -DTORCH_PEER='"$(CURDIR)/bench/speed/torch_peer.py"'
$(B)/bench/kernels $(B)/bench/models: $(patsubst %.c,$(B)/obj/%.o,$(wildcard bench/speed/*.c))
$(B)/bench/%: $(B)/obj/bench/%.o $(B)/libdoorbell.a
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $(filter %.o,$^) $(B)/libdoorbell.a $(ALL_LDFLAGS) $(LIBS)
bench: all $(KERNELS_CO) $(addprefix $(B)/bench/,$(BENCHES))
	$(Q)for b in $(filter-out kernels models,$(BENCHES)); do echo "== $$b"; $(B)/bench/$$b || exit 1; done
	$(Q)$(B)/doorbell bench
