//! What a switch refuses of its router and its tunnel endpoint.

use super::{SwitchConfig, SwitchConfigError, SwitchConfigPlace};
use crate::switch::route::RouterConfigError;
use crate::switch::vtep::{VtepConfig, VtepConfigError};

impl From<RouterConfigError> for SwitchConfigError {
    fn from(error: RouterConfigError) -> Self {
        let RouterConfigError { place, label, field, problem } = error;
        Self { place: SwitchConfigPlace::Router(place), label, field, problem }
    }
}

impl From<VtepConfigError> for SwitchConfigError {
    fn from(error: VtepConfigError) -> Self {
        vtep_error(error.index, error.field, error.problem)
    }
}

fn vtep_error(index: usize, field: &'static str, problem: String) -> SwitchConfigError {
    let place = SwitchConfigPlace::Vtep(index);
    SwitchConfigError { place, label: "vtep".to_owned(), field, problem }
}

impl SwitchConfig {
    pub(super) fn check_layer3(&self) -> Result<(), SwitchConfigError> {
        if let Some(router) = &self.router {
            router.check(&self.ports)?;
        }
        self.vtep.as_ref().map_or(Ok(()), |vtep| self.check_vtep(vtep))
    }

    fn check_vtep(&self, vtep: &VtepConfig) -> Result<(), SwitchConfigError> {
        vtep.check()?;
        let own = self.router.iter().flat_map(|router| &router.addresses);
        if !own.into_iter().any(|own| own.address == vtep.address) {
            let problem = format!("{} is no address of this switch's router", vtep.address);
            return Err(vtep_error(0, "address", problem));
        }
        for (index, vni) in vtep.vnis.iter().enumerate() {
            if !self.ports.iter().any(|port| port.vlan.has(vni.vlan)) {
                let problem = format!("no port is in VLAN {}", vni.vlan);
                return Err(vtep_error(index, "vnis", problem));
            }
        }
        Ok(())
    }
}
